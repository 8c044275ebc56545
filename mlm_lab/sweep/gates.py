"""The gate before a grid: the arms at its two ends, one seed that no test uses, a quarter of the budget. Small encoders sit on the unigram
plateau for a while, and an arm that never leaves it has nothing to compare."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from mlm_lab import console
from mlm_lab.gate import gate
from mlm_lab.run_config import to_dict
from mlm_lab.sweep.points import Point
from mlm_lab.sweep.sweep_file import SEED, SweepFile
from mlm_lab.training.budget import BUDGETS

SHARE = 0.25
SUFFIX = ".gate"


def gate_points(sweep: SweepFile, points: Sequence[Point]) -> list[Point]:
    """The first and the last arm as listed, at a quarter of their budget. Nothing of it is evaluated."""
    arms = list({point.arm: point for point in reversed(points)}.values())[::-1]
    seeds = {point.seed for point in points}
    seed = next(number for number in range(len(seeds) + 1) if number not in seeds)
    return [_short(sweep, point, seed) for point in (arms[:1] + arms[-1:] if len(arms) > 1 else arms)]


def _short(sweep: SweepFile, point: Point, seed: int) -> Point:
    budget = to_dict(point.config)["budget"]
    name = next(name for name in BUDGETS if budget[name] is not None)
    amount = budget[name] * SHARE
    amount = max(1, round(amount)) if name in ("steps", "tokens") else amount
    kept = [word for word in point.overrides if word.partition("=")[0] not in (SEED, "study", *(f"budget.{other}" for other in BUDGETS))]
    stages = ",".join(stage for stage in point.config.stages if stage != "evaluate")
    words = [f"seed={seed}", f"budget.{name}={amount}", f"study={sweep.name}{SUFFIX}", f"stages=[{stages}]"]
    return replace(point, overrides=(*kept, *words), seed=seed)


def show_gate(sweep: SweepFile, points: Sequence[Point]) -> None:
    """The commands, and how far their runs are."""
    ends = gate_points(sweep, points)
    found = gate({point.arm: point.folder for point in ends})
    console.say("\nbefore the grid, the gate: do its ends leave the unigram plateau in a quarter of the budget? (--plan again shows it)")
    for point, line in zip(ends, found.lines(), strict=True):
        console.say(f"  python -m mlm_lab {shlex.join(point.overrides)}\n      {line}")
