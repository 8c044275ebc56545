"""About how long a run takes on this machine, before it is started: a few of its rows through its own module, the rest by proportion."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.errors import UserError
from mlm_lab.training.calibration import seconds_per_step
from mlm_lab.training.course import Course
from mlm_lab.training.trainer import make_fabric

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from mlm_lab.run_config import RunConfig
    from mlm_lab.training.phases import Phase

ENOUGH_FLOPS = {"cpu": 2e11}
OF_A_DEVICE = 2e13
"""Of the rows that are timed: a second or so, and enough that fixed costs do not show."""
SECONDS, STEPS = 2.0, 50
BYTES_A_PARAMETER = 24
"""Weights, a copy, its gradient, AdamW's two moments, and room."""


@dataclass(frozen=True)
class Estimate:
    seconds_per_step: float | None
    """Of the run's average step on one device; None where it was not measured."""
    note: str
    """Where it was measured, or why it was not."""


def estimate_time(config: RunConfig, store_folder: Path, parameters: int) -> Estimate:
    """Time some rows of each length phase, forward, backward and optimiser, on the device that the run would use, alone."""
    if config.trainer.accelerator == "tpu":
        return Estimate(None, "not measured: a TPU compiles its steps first")
    try:
        fabric = make_fabric(config.trainer)
    except UserError:
        return Estimate(None, f"not measured: there is no {config.trainer.accelerator} here")
    if fabric.device.type == "cpu" and BYTES_A_PARAMETER * parameters > os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        return Estimate(None, "not measured: the model does not fit into this machine's free memory")
    course = Course.open(config, store_folder)
    seconds = sum(phase.share * _seconds(course, phase, fabric) for phase in course.phases)
    return Estimate(seconds, f"about, on one {fabric.device.type} as busy as it is now; validation and evaluation come on top")


def _seconds(course: Course, phase: Phase, fabric: Fabric) -> float:
    settings, cost = course.config.trainer, course.costs[phase.number]
    fitting = int(ENOUGH_FLOPS.get(fabric.device.type, OF_A_DEVICE) / (cost.flops.total / phase.batch_size))
    rows = max(1, min(phase.batch_size, settings.micro_batch_size or phase.batch_size, fitting))
    batch = {name: value[:rows] for name, value in course.sample_batch(phase=phase.number).items()}
    found = seconds_per_step(
        course.module,
        course.config.optim,
        lambda step: batch,
        device=fabric.device,
        micro_batch_size=None,
        context=fabric.autocast,
        enough_seconds=SECONDS,
        enough_steps=STEPS,
    )
    return found * phase.batch_size / rows
