"""A run as a checkpoint, and a checkpoint as a run: whole models or parts of one, on the number of ranks that there are now.

module, optimiser, step, what is recorded -> checkpoint.save | save_parts          on all ranks, inside the loop
checkpoint.load_last -> is it this run's? -> module and optimiser, as a whole or each rank's rows -> the same stream goes on
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch

from mlm_lab import console
from mlm_lab.errors import UserError
from mlm_lab.training import checkpoint
from mlm_lab.training.module import Pretraining
from mlm_lab.training.sharding import is_sharded, load_parts, own_parts, parts_of_whole

STATE = {"recorder", "step", "consumed", "store", "threads", "ranks", "peak_memory_bytes"}
"""What a checkpoint says of a run besides weights and moments."""


def save(folder: Path, trainer: lightning.Trainer, module: Pretraining, about: dict[str, Any], keep: int) -> None:
    """Write a checkpoint of the steps that are done. Every rank calls it.

    about: recorder, peak_memory_bytes.
    Raises:
        UserError: the disk is full or not writable; the older checkpoints are untouched.
    """
    state = about | {
        "step": module.step,
        "consumed": module.course.examples(module.total_steps, module.step),
        "store": module.course.train.fingerprint,
        "threads": torch.get_num_threads(),
        "ranks": trainer.world_size,
    }
    optimizer, strategy = trainer.optimizers[0], trainer.strategy
    if is_sharded(module.module):
        part = {"run": state, "tensors": own_parts(module.module, optimizer)}
        checkpoint.save_parts(folder, module.step, part, trainer.global_rank, keep, strategy.barrier, lambda mine: _on_any(module, mine))
        return
    weights = strategy.lightning_module_state_dict()
    state["module"] = {name.removeprefix("module."): value for name, value in weights.items()}
    state["optimizer"] = strategy.optimizer_state(optimizer)
    if trainer.is_global_zero:
        checkpoint.save(folder, module.step, state, keep)
    strategy.barrier()


def restore(folder: Path, trainer: lightning.Trainer, module: Pretraining) -> dict[str, Any] | None:
    """Put module and optimiser back to the last good checkpoint, and say so. Returns its state; None where there is none.

    Raises:
        UserError: it is of another version or of another text, or the ranks have not found the same one.
    """
    found = checkpoint.load_last(folder)
    parts = found if isinstance(found, list) else None
    state = parts[0].get("run", {}) if parts else found
    _refuse_another_view(folder, trainer, module, -1 if state is None else state.get("step", 0))
    if state is None:
        return None
    _refuse_another_run(folder, state, module.course.train.fingerprint)
    if state["threads"] != torch.get_num_threads() and trainer.strategy.root_device.type == "cpu":
        console.say(f"using {state['threads']} threads as before the interruption, so that the sums are the same")
        torch.set_num_threads(state["threads"])
    _load(trainer, module, state, parts)
    module.step = state["step"]
    console.say(f"continuing at step {state['step']:,} of {module.total_steps:,} ({state['consumed']:,} examples seen)")
    if state["ranks"] != trainer.world_size:
        sizes = dict.fromkeys(f"{phase.batch_size:,}" for phase in module.course.phases)
        console.say(
            f"{trainer.world_size} processes instead of {state['ranks']}: batch_size stays {' and '.join(sizes)}, shared out anew; no "
            "example is lost or seen twice (sums and dropout are drawn up otherwise, so the bits differ)"
        )
    return state


def _load(trainer: lightning.Trainer, module: Pretraining, state: dict[str, Any], parts: list[dict[str, Any]] | None) -> None:
    """Weights and moments, whole or in parts, into a module that is whole or in parts."""
    if parts is None and is_sharded(module.module):
        parts = [{"tensors": parts_of_whole(module.module, trainer.optimizers[0], state["module"], state["optimizer"])}]
    if parts is not None:
        load_parts(module.module, trainer.optimizers[0], [part["tensors"] for part in parts])
        return
    trainer.strategy.load_model_state_dict({"state_dict": {f"module.{name}": value for name, value in state["module"].items()}})
    trainer.strategy.load_optimizer_state_dict({"optimizer_states": [state["optimizer"]]})


def _refuse_another_run(folder: Path, state: dict[str, Any], store: str) -> None:
    if missing := STATE - state.keys():
        raise UserError(
            "the checkpoint is of another version of the program",
            where=str(folder),
            given=f"without {', '.join(sorted(missing))}",
            fix=f"finish the run with that version, or delete {folder.parent} to start again",
        )
    if state["store"] != store:
        raise UserError(
            "the checkpoint was trained on another token store",
            where=str(folder),
            given=f"store {store}",
            allowed=f"store {state['store']}",
            fix=f"restore the text that the run began with, or delete {folder.parent} to start again",
        )


def _refuse_another_view(folder: Path, trainer: lightning.Trainer, module: Pretraining, step: int) -> None:
    """Raises UserError where the ranks have not found the same checkpoint: machines without a shared disk would go on from two places."""
    if trainer.world_size == 1:
        return
    mine = torch.tensor([step, step * step], dtype=torch.float64, device=trainer.strategy.root_device)
    total, squares = module.reduce(mine).tolist()
    if abs(squares * trainer.world_size - total * total) > 0.5:
        raise UserError(
            "the processes of the run do not see the same checkpoints",
            where=str(folder),
            given=f"this one has found step {step}" if step >= 0 else "this one has found none",
            fix="output_dir=FOLDER on a disk that all machines share",
        )


def _on_any(module: Pretraining, mine: bool) -> bool:
    """Whether it is so on some rank."""
    return bool(module.reduce(torch.tensor(int(mine), device=module.device)).item())
