"""Where metrics go besides metrics.csv, which every run writes; and what a viewer of runs is told at the end, by the names of sweeps."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm_lab.ranks import is_main_process

if TYPE_CHECKING:
    from mlm_lab.run_folder import RunFolder
    from mlm_lab.training.wandb_run import WandbRun

OF_A_CELL = ("n", "mean", "std", "median")
TOTALS = ("steps", "tokens", "positions", "supervised_positions", "seconds", "tokens_per_second", "peak_memory_bytes")


@dataclass(frozen=True, kw_only=True)
class CsvLogger:
    """metrics.csv in the run folder and nothing else."""

    def build(self, folder: RunFolder, config: dict[str, Any]) -> list:
        """Lightning's loggers for a run; metrics.csv is not one of them, since it is cut back when a run resumes."""
        return []

    def recording(self, folder: RunFolder, config: dict[str, Any]) -> AbstractContextManager[None]:
        """The run, from its first stage to its last."""
        return nullcontext()


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
        from mlm_lab.training.wandb_run import WandbRun

        folder.path.mkdir(parents=True, exist_ok=True)
        mode = os.environ.get("WANDB_MODE")
        offline = mode == "offline" if mode else "WANDB_API_KEY" not in os.environ if self.offline is None else self.offline
        names = {} if in_sweep() else {"id": folder.run_id, "name": folder.run_id}
        about = {"project": self.project, "entity": self.entity, "group": self.group, "config": {**config, "run_folder_id": folder.run_id}}
        return [WandbRun(folder.path, online=not offline, **about, **names)]

    @contextmanager
    def recording(self, folder: RunFolder, config: dict[str, Any]) -> Iterator[None]:
        """The run, from its first stage to its last. After it the summary of W&B's run holds whatever a sweep's metric may be, evaluations
        too, its tables what the screen showed last, and the run is closed, so that another one of this process is not taken for it.

        A start that trains nothing opens a run where the summary has got something new, and always under an agent, whose point it is.
        """
        before = headline(folder.read_summary())
        try:
            yield
        except BaseException as error:
            _close({}, getattr(error, "exit_code", 1))
            raise
        if not is_main_process():
            return
        values = headline(folder.read_summary())
        if _open_run() is None and (in_sweep() or values != before):
            self.build(folder, config)
        if (run := _open_run()) is not None:
            run.log_tables(tables(folder.read_summary()))
        _close(values, 0)

    def log_artifact(self, folder: RunFolder, config: dict[str, Any], model: Path) -> None:
        """Log an exported model's folder as an artifact of the run, named by the run folder. Offline it waits for `wandb sync`."""
        (run,) = self.build(folder, config)
        run.log_artifact(f"{folder.run_id}-export", model)
        run.close({}, 0)


def in_sweep() -> bool:
    """Whether an agent of a W&B sweep has started this process."""
    return "WANDB_SWEEP_ID" in os.environ


def headline(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a run's summary.json under the names that sweeps and reports use: val/loss, cola/matthews (the mean of the fine-tuning
    seeds), tokens, flops, parameters; without those that are not known."""
    flops, parameters = summary.get("flops") or {}, summary.get("parameters") or {}
    values = {
        **(summary.get("metrics") or {}),
        **{
            f"{task}/{metric}": cell.get("mean")
            for task, metrics in (summary.get("evaluation") or {}).items()
            for metric, cell in metrics.items()
        },
        **{name: summary.get(name) for name in TOTALS},
        "flops": flops.get("total"),
        "flops_head": flops.get("head"),
        "parameters": parameters.get("total"),
    }
    return {name: value for name, value in values.items() if value is not None}


def tables(summary: Mapping[str, Any]) -> dict[str, tuple[list[str], list[list[Any]]]]:
    """Name -> columns and rows of what a run's summary.json has that is no number: held-out losses side by side, the tasks with their
    spread and their floor, and what the model filled in for a mask. Without those that are empty."""
    held_out = [[name, value] for name, value in (summary.get("metrics") or {}).items() if isinstance(value, int | float)]
    tasks = [
        [task, metric, *(cell.get(name) for name in OF_A_CELL), (cell.get("floor") or {}).get("mean")]
        for task, metrics in (summary.get("evaluation") or {}).items()
        for metric, cell in metrics.items()
    ]
    samples = [[sample["text"], sample["gold"], " | ".join(sample["answers"])] for sample in summary.get("fill_mask") or []]
    found = {
        "held_out": (["metric", "value"], held_out),
        "downstream": (["task", "metric", *OF_A_CELL, "random start"], tasks),
        "fill_mask": (["input", "gold", "top answers"], samples),
    }
    return {name: table for name, table in found.items() if table[1]}


def _open_run() -> WandbRun | None:
    """The run that this process has open, if it has come to that at all."""
    module = sys.modules.get("mlm_lab.training.wandb_run")
    return None if module is None else module.WandbRun.current


def _close(summary: Mapping[str, Any], exit_code: int) -> None:
    if (run := _open_run()) is not None:
        run.close(summary, exit_code)
