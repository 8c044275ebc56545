"""What a run would be: its sizes, costs and time, without training it. `python -m mlm_lab stages=[plan] ...`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlm_lab import console
from mlm_lab.stages import pretrain
from mlm_lab.stages.prepare import describe_plans, prepare
from mlm_lab.training.phases import steps_until
from mlm_lab.training.trainer import resolve_precision

if TYPE_CHECKING:
    from mlm_lab.run_config import RunConfig
    from mlm_lab.run_folder import RunFolder
    from mlm_lab.training.course import Course
    from mlm_lab.training.estimate import Estimate

STEP_COLUMNS = [
    "row length",
    "sequences",
    "steps",
    "rows of an epoch",
    "corpus tokens",
    "positions",
    "targets",
    "density",
    "FLOPs",
    "FLOPs a token",
]
STEP_NOTE = "density: targets for each position that is not padding; FLOPs: forward and backward, a token is one of the corpus"


def check(config: RunConfig) -> None:
    """As for pretraining."""
    pretrain.check(config)


def run(config: RunConfig, folder: RunFolder) -> None:
    """Print parameters, steps, tokens, positions, FLOPs, memory and time, of the run and of each of its length phases. Prepares the token
    store where there is none yet. Costs come from shapes, so that no weight is made and no text of the run's size is needed; the time
    from a few rows on this machine's device."""
    import torch

    from mlm_lab.training.course import Course
    from mlm_lab.training.estimate import estimate_time

    store = prepare(config).store_folder
    with torch.device("meta"):
        course = Course.open(config, store)
    steps = None if config.budget.hours is not None else course.steps(None)
    estimate = estimate_time(config, store, course.parameters)
    rows = [*_totals(course, steps, resolve_precision(config.trainer)), _time(steps, estimate)]
    console.table("Plan", ["", "value", ""], rows)
    console.table("An average step", STEP_COLUMNS, [_phase_row(course, number, steps) for number in range(len(course.phases))], STEP_NOTE)
    for line in describe_plans(config, course.train):
        console.say(line)


def _time(steps: int | None, estimate: Estimate) -> list[str]:
    if estimate.seconds_per_step is None:
        return ["time", "-", estimate.note]
    whole = "" if steps is None else f"{console.duration(steps * estimate.seconds_per_step)}, "
    return ["time", f"{whole}{estimate.seconds_per_step:.3g} s a step", estimate.note]


def _totals(course: Course, steps: int | None, precision: str) -> list[list[str]]:
    config = course.config
    memory = course.memory_bytes(config.trainer.micro_batch_size, 2 if precision.startswith("bf16") else 4)
    rows = [
        ["parameters", f"{course.parameters:,}", ""],
        ["memory", f"{memory / 2**30:.2f} GiB", f"about, for each device, {precision}"],
    ]
    if steps is None:
        return [*rows, ["steps", "-", f"as many as fit into {config.budget.hours} h: measured when pretraining starts"]]
    positions, padding = course.total(lambda cost: cost.positions, steps), course.total(lambda cost: cost.padding, steps)
    targets, flops = course.total(lambda cost: sum(cost.targets.values()), steps), course.flops(steps, steps)
    return [
        *rows,
        ["steps", f"{steps:,}", f"{course.epochs(steps):.2f} epochs"],
        ["corpus tokens", _number(course.total(lambda cost: cost.tokens, steps)), ""],
        ["positions", _number(positions), f"inputs, about {100 * padding / positions:.0f} % of them padding"],
        ["supervised positions", _number(targets), "about, targets of all losses"],
        ["FLOPs", _number(flops.total), f"{100 * flops.head / flops.total:.0f} % of them the vocabulary projection"],
    ]


def _phase_row(course: Course, number: int, steps: int | None) -> list[str]:
    phase, cost = course.phases[number], course.costs[number]
    return [
        f"{phase.max_length}",
        f"{phase.batch_size}",
        "-" if steps is None else f"{steps_until(course.phases, steps, steps)[number]:,}",
        f"{cost.rows:,}",
        f"{cost.tokens:,.0f}",
        f"{cost.positions:,}",
        ", ".join(f"{name} {count:,}" for name, count in cost.targets.items()),
        f"{cost.density:.3f}",
        f"{cost.flops.total:.3g}",
        f"{cost.flops.total / cost.tokens:.3g}",
    ]


def _number(value: float) -> str:
    """12,345, and 4.26e10 from a thousand million on."""
    return f"{value:,.0f}" if value < 1e9 else f"{value:.3g}".replace("e+", "e")
