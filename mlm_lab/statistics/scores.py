"""What is compared: one number for each arm and pretraining seed, and which of them can be compared at all.

A failed or unfinished run has no number and stands nowhere in the mapping. A finished run whose metric is undefined (a correlation with
constant predictions, a loss of nan) has None or nan: it is never left out in silence, for leaving runs out on their outcome is selection
(traps.md 33).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TypeVar

Value = TypeVar("Value")
Scores = Mapping[str, Mapping[int, float | None]]
"""arm -> pretraining seed -> score."""


def is_defined(value: float | None) -> bool:
    """Whether a score is a finite number."""
    return value is not None and math.isfinite(value)


def undefined_seeds(of_arm: Mapping[int, float | None]) -> list[int]:
    """Seeds with which the run finished and its metric is undefined."""
    return [seed for seed, value in of_arm.items() if not is_defined(value)]


def common_seeds(first: Mapping[int, float | None], second: Mapping[int, float | None]) -> list[int]:
    """Seeds that both arms have, in the first one's order."""
    return [seed for seed in first if seed in second]


def without_seeds(of_seeds: Mapping[str, Mapping[int, Value]], seeds: Collection[int]) -> dict[str, dict[int, Value]]:
    """The scores, or the states, less those of some seeds: the pilot seeds that chose a metric or a rate do not also test it."""
    return {arm: {seed: value for seed, value in of_arm.items() if seed not in seeds} for arm, of_arm in of_seeds.items()}


def counted(number: int, noun: str) -> str:
    """1 seed, 2 seeds: for what is said in words."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
