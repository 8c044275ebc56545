"""Seeds x examples: an interval for further seeds and further examples, from 10 seeds (fewer only resample themselves).

Seeds and examples are crossed (every seed answers the same examples), so both are drawn anew with replacement, independently, and the
two arms keep their pairs (Owen, The pigeonhole bootstrap, Annals of Applied Statistics 2007, which shows that this overstates the variance
a little and never understates it). No percentiles: the bootstrap's standard error, corrected for the seeds' degrees of freedom, with
Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.statistics.scores import common_seeds
from mlm_lab.statistics.student import critical

if TYPE_CHECKING:
    Metric = Callable[[np.ndarray], np.ndarray]

FEWEST_SEEDS = 10
CHUNK = 1 << 22
"""Example weights that are held at once."""


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """Difference of two arms with an interval over seeds and examples."""

    difference: float
    standard_error: float
    seed_share: float
    """Share of the variance that is there with the examples as they are, from the seeds."""
    low: float
    high: float
    seeds: int
    examples: int
    draws: int


def resample_seeds_and_examples(
    arm: Mapping[int, np.ndarray],
    baseline: Mapping[int, np.ndarray],
    metric: Metric,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    draws: int = 2000,
) -> Resampled:
    """Arm minus baseline, the mean over the seeds that both have.

    Args:
        arm: seed -> (examples, columns), what each example (each sentence, for entities) adds to the sums that the metric is made of.
        baseline: likewise, the same examples in the same order.
        metric: (..., columns) sums -> (...) scores: `mean`, `f1`, `matthews`, `pearson` of this module, or one's own.
        rng: keyed by the caller.

    Raises:
        ValueError: fewer than 10 common seeds, other examples, or a metric that is undefined with a seed.
    """
    seeds = common_seeds(arm, baseline)
    if len(seeds) < FEWEST_SEEDS:
        raise ValueError(f"{len(seeds)} common seeds: resampling needs {FEWEST_SEEDS}")
    if len({np.shape(of_arm[seed]) for of_arm in (arm, baseline) for seed in seeds}) > 1:
        raise ValueError("the arms were not measured on the same examples")
    tables = np.stack([np.stack([of_arm[seed] for seed in seeds], axis=1) for of_arm in (arm, baseline)], axis=2).astype(float)
    examples, columns = len(tables), tables.shape[-1]  # (examples, seeds, 2 arms, columns)
    by_seed = _difference(metric(tables.sum(axis=0)))
    if not np.isfinite(by_seed).all():
        raise ValueError(f"undefined with seed {seeds[int(np.argmin(np.isfinite(by_seed)))]}")
    flat, resampled = tables.reshape(examples, -1), np.empty(draws)
    step = max(1, CHUNK // examples)
    for start in range(0, draws, step):
        count = min(step, draws - start)
        weights = rng.multinomial(examples, np.full(examples, 1 / examples), size=count)
        of_seeds = rng.multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), size=count) / len(seeds)
        drawn = _difference(metric((weights @ flat).reshape(count, len(seeds), 2, columns)))
        resampled[start : start + count] = (of_seeds * drawn).sum(axis=1)
    difference, correction = float(by_seed.mean()), len(seeds) / (len(seeds) - 1)
    error = math.sqrt(float(np.nanvar(resampled)) * correction)
    half = critical(len(seeds) - 1, 1 - level) * error
    from_seeds = float(by_seed.var(ddof=1)) / len(seeds)
    return Resampled(
        difference=difference,
        standard_error=error,
        seed_share=min(1.0, from_seeds / error**2) if error > 0 else math.nan,
        low=difference - half,
        high=difference + half,
        seeds=len(seeds),
        examples=examples,
        draws=draws,
    )


def mean(sums: np.ndarray) -> np.ndarray:
    """Of the columns (total, count): accuracy from (right, 1), exact match likewise."""
    return _ratio(sums[..., 0], sums[..., 1])


def f1(sums: np.ndarray) -> np.ndarray:
    """Of the columns (true positives, false positives, false negatives); 0 where there are none."""
    right, false, missed = np.moveaxis(sums, -1, 0)
    return np.nan_to_num(_ratio(2 * right, 2 * right + false + missed))


def matthews(sums: np.ndarray) -> np.ndarray:
    """Of the columns (true positives, false positives, false negatives, true negatives); 0 with constant predictions."""
    tp, fp, fn, tn = np.moveaxis(sums, -1, 0)
    return np.nan_to_num(_ratio(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))))


def pearson(sums: np.ndarray) -> np.ndarray:
    """Of the columns (1, x, y, x * x, y * y, x * y); nan where x or y is constant."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    return _ratio(n * xy - x * y, np.sqrt((n * xx - x * x).clip(min=0) * (n * yy - y * y).clip(min=0)))


def _difference(scores: np.ndarray) -> np.ndarray:
    return scores[..., 0] - scores[..., 1]


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)
