"""Seeds x examples: an interval for further seeds and further examples, from 10 seeds (fewer only resample themselves)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FEWEST_SEEDS = 10


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """Difference of two arms with an interval over seeds and examples."""

    difference: float
    standard_error: float
    seed_share: float
    """Share of the variance that comes from seeds alone."""
    low: float
    high: float
    seeds: int
    examples: int
    draws: int


def resample_seeds_and_examples(
    arm: Mapping[int, np.ndarray],
    baseline: Mapping[int, np.ndarray],
    metric: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    draws: int = 2000,
) -> Resampled:
    """Arm minus baseline, the seeds that both have resampled in pairs, and the examples, the same for every seed.

    Args:
        arm: seed -> (examples, columns) what each example (sentence, for entities) adds to the metric's sums.
        baseline: likewise, the same examples in the same order.
        metric: (..., columns) sums -> (...) scores: `mean`, `f1`, `matthews`, `pearson`.
        rng: keyed by the caller.

    Raises:
        ValueError: fewer than 10 common seeds, or other examples.
    """
    raise NotImplementedError
