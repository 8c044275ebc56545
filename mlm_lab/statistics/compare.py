"""Arms against the baseline, put together: blocks, intervals, tests, equivalence, trend, and the words (traps.md 33, 34).

Every arm is compared with the baseline by randomised blocks (seed = block). The primary contrast, named before any run, is tested
uncorrected; the others share the error rate by Holm. Arms with runs that did not leave the plateau, or that collapsed, keep every run, but
their spread, which is that between two states and not that between seeds, stays out of the pool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mlm_lab.statistics.description import Description
from mlm_lab.statistics.proportions import Proportion
from mlm_lab.statistics.scores import Scores
from mlm_lab.statistics.trend import Trend


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One arm minus the baseline. What cannot be said is None; `verdict` then says why."""

    arm: str
    primary: bool
    n: int
    """Seeds that both have."""
    difference: float | None
    """Arm minus baseline, in the metric's unit, whichever way is better."""
    standard_error: float | None
    degrees_of_freedom: int
    low: float | None
    """Of the interval for this difference alone."""
    high: float | None
    simultaneous_low: float | None
    """Of the interval that holds for all arms at once (Dunnett's, with the correlation of the design)."""
    simultaneous_high: float | None
    p: float | None
    """Two-sided, of this difference alone."""
    p_adjusted: float | None
    """Holm's over all but the primary contrast; the primary's own p."""
    p_permutation: float | None
    """Exact, from flipping the signs of the seeds' differences; None where too few seeds could reach the level."""
    smallest_p: float
    """The least that the permutation test can give with n seeds."""
    equivalence_p: float | None
    """Of two one-sided tests within the margin; Holm's over all but the primary contrast. None without a margin."""
    detectable: float | None
    """Difference that these seeds, with the spread seen, would have shown four times in five."""
    paired_correlation: float | None
    """Of the two arms' scores over the seeds that both have; from 3 seeds."""
    pairing_gain: float | None
    """Variance of the unpaired difference over that of the paired one: how many times the seeds an unpaired study needs."""
    pooled: bool
    """Whether the spread is pooled over the arms, or this pair's own."""
    excluded: str | None
    """Why the arm's spread stays out of the pool."""
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The residual spread of the arms that share one."""

    arms: tuple[str, ...]
    std: float
    """Of one run about its arm and its seed."""
    degrees_of_freedom: int
    pairing_gain: float | None
    """Efficiency of the blocks against an unpaired design of the same size; from complete blocks only."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A metric over all arms."""

    baseline: str
    level: float
    margin: float | None
    arms: Mapping[str, Description]
    contrasts: tuple[Contrast, ...]
    """In the order of the arms, the baseline left out."""
    pool: Pool | None
    """None where fewer than two arms share a spread, or none can be told."""
    trend: Trend | None
    """Of ordered arms, over the seeds that have all of them."""
    escaped: Mapping[str, Proportion]
    """arm -> runs that left the plateau, of those of which it is known."""
    excluded: Mapping[str, str]
    """arm -> why its spread stays out of the pool."""


def compare(
    scores: Scores,
    *,
    baseline: str,
    primary: str | None = None,
    margin: float | None = None,
    higher_is_better: bool = True,
    level: float = 0.95,
    ordered: bool = False,
    left_plateau: Mapping[str, Mapping[int, bool | None]] | None = None,
    excluded_from_pool: Mapping[str, str] | None = None,
    pilot_seeds: Collection[int] = (),
) -> Comparison:
    """Every arm against the baseline.

    Args:
        scores: arm -> seed -> score of one metric. Arms in the order of the table (of the factor's values, where they are ordered).
        baseline: the arm that the others are compared with.
        primary: arm of the contrast that was named beforehand; None for a secondary metric: all contrasts are then Holm's.
        margin: differences below it do not matter, in the metric's unit.
        higher_is_better: False for a loss.
        level: of the intervals; 1 - level is the error rate of the tests.
        ordered: test for a trend over the arms as listed.
        left_plateau: arm -> seed -> whether the run left the unigram plateau; None where it is not known.
        excluded_from_pool: arm -> why its spread is not that between seeds ("2 of 3 runs collapsed").
        pilot_seeds: seeds that chose a metric or a rate, and so do not test it.
    """
    raise NotImplementedError
