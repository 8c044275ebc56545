"""Where metrics go besides metrics.csv, which every run writes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlm_lab.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class CsvLogger:
    """metrics.csv in the run folder and nothing else."""

    def build(self, folder: RunFolder, config: dict[str, Any]) -> list:
        """Lightning's loggers for a run; metrics.csv is not one of them, since it is cut back when a run resumes."""
        return []


@dataclass(frozen=True, kw_only=True)
class WandbLogger:
    """Weights & Biases. Without a key (WANDB_API_KEY or a login) the run is recorded offline in the run folder, for `wandb sync`."""

    project: str
    """Project of the run."""
    entity: str | None
    """User or team; null: the default of the account."""
    group: str | None
    """Group of the run in the project."""
    offline: bool | None
    """Whether nothing is sent; null: offline unless WANDB_API_KEY is set. WANDB_MODE goes before it."""

    def build(self, folder: RunFolder, config: dict[str, Any]) -> list:
        """config: the resolved config, shown with the run. Outside a sweep the run folder's id names the run, so that a resumed run goes
        on in the same one; under an agent W&B names it and the id stands in its config."""
        from lightning.pytorch.loggers import WandbLogger as LightningWandb

        folder.path.mkdir(parents=True, exist_ok=True)
        in_sweep = "WANDB_SWEEP_ID" in os.environ
        offline = "WANDB_API_KEY" not in os.environ if self.offline is None else self.offline
        names = {} if in_sweep else {"id": folder.run_id, "name": folder.run_id, "resume": "allow"}
        mode = {} if "WANDB_MODE" in os.environ else {"mode": "offline" if offline else "online"}
        return [
            LightningWandb(
                save_dir=str(folder.path),
                project=self.project,
                entity=self.entity,
                group=self.group,
                log_model=False,
                config={**config, "run_folder_id": folder.run_id},
                **names,
                **mode,
            )
        ]
