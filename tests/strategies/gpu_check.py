"""On a GPU (or, with the same words, on the CPU): each objective for 50 steps in bf16, eager and compiled, its loss against that of the CPU
in float32; stopping and going on; memory and time. At most eight minutes. Prints a table and exits 1 where something is off.

python -m tests.strategies.gpu_check [cpu | gpu] [OBJECTIVE ...]
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lightning
import torch

from tests.training.test_costs import OBJECTIVES
from tests.training.test_training import rows_of
from tests.training.tiny_run import make_config, train

STEPS, LAST, NOISE = 50, 10, 0.03
"""Steps of a run; those at its end whose mean loss is compared; the relative difference that bf16 may make."""


class StopAt(lightning.Callback):
    def __init__(self, step: int):
        self.step = step

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if module.step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


def last_loss(folder: Path) -> float:
    return sum(row["train/loss"] for row in rows_of(folder)[-LAST:]) / LAST


def check(objective: str, device: str, root: Path) -> list[str]:
    """Rows of the table; those that are off begin with !"""
    common = [f"objective={objective}", "trainer.log_every_steps=1", "optim.peak_lr=3e-3", f"budget.steps={STEPS}"]
    ours = [f"trainer.accelerator={device}", "trainer.precision=bf16-mixed"]
    train(make_config(*common), root / "reference")
    expected, lines = last_loss(root / "reference"), []
    for name, words in {"eager": ours, "compiled": [*ours, "trainer.compile=true"]}.items():
        if device == "gpu":
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        train(make_config(*common, *words), root / name)
        seconds, found = time.perf_counter() - started, last_loss(root / name)
        memory = f"{torch.cuda.max_memory_allocated() / 2**20:.0f} MiB" if device == "gpu" else "-"
        off = abs(found / expected - 1) > NOISE
        lines.append(
            f"{'!' if off else ' '} {objective:16} {name:9} loss {found:.4f}  cpu float32 {expected:.4f}  {seconds:5.1f} s  {memory}"
        )
    train(make_config(*common, *ours), root / "parts", StopAt(STEPS // 2))
    resumed = train(make_config(*common, *ours), root / "parts")
    again, first = last_loss(root / "parts"), last_loss(root / "eager")
    off = resumed.module.step != STEPS or abs(again / first - 1) > (0 if device == "cpu" else 1e-3)
    lines.append(f"{'!' if off else ' '} {objective:16} {'resumed':9} loss {again:.6f}  without a stop {first:.6f}")
    return lines


def main(words: list[str]) -> int:
    device = next((word for word in words if word in ("cpu", "gpu")), "gpu" if torch.cuda.is_available() else "cpu")
    where = torch.cuda.get_device_name() if device == "gpu" else "the CPU"
    print(f"torch {torch.__version__}, lightning {lightning.__version__}, {where}", flush=True)
    off, started = 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for objective in [word for word in words if word in OBJECTIVES] or OBJECTIVES:
            for line in check(objective, device, Path(folder, objective)):
                print(line, flush=True)
                off += line.startswith("!")
    print(f"{'all as expected' if not off else f'{off} rows are off'}, {time.perf_counter() - started:.0f} s")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
