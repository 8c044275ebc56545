"""XLA without a TPU: each objective for 20 steps on the CPU's own XLA client, at most three compilations after the first steps, and the
losses of the ordinary CPU run to 1e-3. In an environment of its own (7 GB):

python -m venv xla && xla/bin/pip install -e . 'torch==2.9.1' 'torch_xla==2.9.0' pytest
PJRT_DEVICE=CPU xla/bin/python -m tests.strategies.xla_check [OBJECTIVE ...]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lightning
import torch

STEPS, FIRST, MOST, CLOSE = 20, 10, 3, 1e-3
"""Steps; those in which the shapes are compiled (a row of metrics and a validation among them); compilations after them; relative."""


def stand_in() -> None:
    """Lightning's TPU accelerator refuses to be used without a TPU: here the CPU plays one."""
    from lightning.pytorch.accelerators.xla import XLAAccelerator

    XLAAccelerator.is_available = staticmethod(lambda: True)
    XLAAccelerator.auto_device_count = staticmethod(lambda: 1)
    XLAAccelerator.parse_devices = staticmethod(lambda devices: [0])
    XLAAccelerator.get_parallel_devices = staticmethod(lambda devices: [torch.device("xla", 0)])
    XLAAccelerator.get_device_stats = lambda self, device: {}


class Compilations(lightning.Callback):
    """How many there were after each step, those of earlier runs of the process left out (whose graphs need none again)."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self._earlier = self._all()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.counts.append(self._all() - self._earlier)

    def _all(self) -> int:
        import torch_xla.debug.metrics as metrics

        data = metrics.metric_data("CompileTime")
        return data[0] if data else 0


def check(objective: str, root: Path) -> str:
    """A row of the table, which begins with ! where it is off."""
    from tests.training.test_training import rows_of
    from tests.training.tiny_run import make_config, train

    common = [f"objective={objective}", "trainer.log_every_steps=5", "validation.every_steps=10", "checkpoint.every_steps=10"]
    train(make_config(*common, steps=STEPS), root / "cpu")
    counting, started = Compilations(), time.process_time()
    xla = ["trainer.accelerator=tpu", "trainer.devices=1", "trainer.static_shapes=auto"]
    train(make_config(*common, *xla, steps=STEPS), root / "xla", counting)
    later = counting.counts[-1] - counting.counts[FIRST - 1]
    worst = max(
        abs(ours[name] / theirs[name] - 1)
        for theirs, ours in zip(rows_of(root / "cpu"), rows_of(root / "xla"), strict=True)
        for name in ("train/loss", "val/loss")
        if name in theirs
    )
    off = later > MOST or worst > CLOSE
    return (
        f"{'!' if off else ' '} {objective:16} {counting.counts[FIRST - 1]} compilations in {FIRST} steps, {later} after them; "
        f"losses within {worst:.1e} of the CPU's; {time.process_time() - started:.0f} s of CPU time"
    )


def main(words: list[str]) -> int:
    import torch_xla

    from tests.training.test_costs import OBJECTIVES

    stand_in()
    torch_xla.device()  # before the first backward pass, which counts the devices that there are
    print(f"torch {torch.__version__}, torch_xla {torch_xla.__version__}, lightning {lightning.__version__}", flush=True)
    off = 0
    with tempfile.TemporaryDirectory() as folder:
        for objective in words or OBJECTIVES:
            line = check(objective, Path(folder, objective))
            print(line, flush=True)
            off += line.startswith("!")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
