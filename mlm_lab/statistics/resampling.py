"""Seeds x examples: an interval for further seeds and further examples, from 10 seeds (fewer only resample themselves).

Seeds and examples are crossed: every seed answers the same examples. Drawing both anew, independently, counts three times what a seed makes
of a single example (Owen, The pigeonhole bootstrap, Annals of Applied Statistics 2007), which for right or wrong answers is most of the
noise. So the draws serve to tell the parts: examples alone, seeds alone, and what both share, which is then counted once. No percentiles: a
standard error with Student's t, its degrees of freedom by Satterthwaite (Biometrics 1946).
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
    """Share of the variance that is there with the examples as they are, from the seeds; 0 where nothing varies."""
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
    of_examples, of_both = _draw(tables.reshape(examples, -1), (len(seeds), 2, columns), metric, rng, draws)
    from_seeds, variance = _variances(by_seed, of_examples, of_both)
    freedom = variance**2 / (from_seeds**2 / (len(seeds) - 1) + of_examples**2 / max(1, examples - 1)) if variance > 0 else 1.0
    difference, half = float(by_seed.mean()), critical(freedom, 1 - level) * math.sqrt(variance)
    return Resampled(
        difference=difference,
        standard_error=math.sqrt(variance),
        seed_share=from_seeds / variance if variance > 0 else 0.0,
        low=difference - half,
        high=difference + half,
        seeds=len(seeds),
        examples=examples,
        draws=draws,
    )


def _draw(flat: np.ndarray, shape: tuple[int, int, int], metric: Metric, rng: np.random.Generator, draws: int) -> tuple[float, float]:
    """Variance of the difference with examples drawn anew, and with seeds drawn anew too. flat: (examples, seeds * 2 arms * columns)."""
    examples, seeds = len(flat), shape[0]
    alone, both = np.empty(draws), np.empty(draws)
    step = max(1, CHUNK // examples)
    for start in range(0, draws, step):
        count = min(step, draws - start)
        weights = rng.multinomial(examples, np.full(examples, 1 / examples), size=count)
        of_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=count) / seeds
        drawn = _difference(metric((weights @ flat).reshape(count, *shape)))
        alone[start : start + count] = drawn.mean(axis=1)
        both[start : start + count] = (of_seeds * drawn).sum(axis=1)
    return float(np.nanvar(alone)), float(np.nanvar(both))


def _variances(by_seed: np.ndarray, of_examples: float, of_both: float) -> tuple[float, float]:
    """That of the seeds with the examples as they are, and the whole.

    With a, b, c for seeds, examples and what a seed makes of an example, and k = (seeds - 1) / seeds: seeds alone show a + c, examples
    alone b + c, both drawn k (a + 2 c) + b + c. The whole is a + b + c, never below what seeds or examples alone show.
    """
    of_seeds = float(by_seed.var(ddof=1)) / len(by_seed)
    k = (len(by_seed) - 1) / len(by_seed)
    shared = (of_both - of_examples - k * of_seeds) / k
    return of_seeds, of_seeds + of_examples - min(max(shared, 0.0), of_seeds, of_examples)


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
