"""Arms against the baseline, put together: blocks, intervals, tests, equivalence, trend, and the words (traps.md 33, 34).

Every arm is compared with the baseline by randomised blocks (seed = block). The primary contrast, named before any run, is tested
uncorrected; the others share the error rate by Holm. Arms with runs that did not leave the plateau, or that collapsed, keep every run, but
their spread, which is that between two states and not that between seeds, stays out of the pool.

The pool takes it that a run's spread is the same in all of its arms. Where one arm's is three times the others', a 5 % test of it errs in
16 % of studies, whatever the number of seeds (tests/statistics/test_error_rates.py): each pair's own test stands beside, with what its
spread is to that of the other arms (spread.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mlm_lab.statistics import plateau
from mlm_lab.statistics.blocks import Estimate
from mlm_lab.statistics.description import Description, describe
from mlm_lab.statistics.dunnett import simultaneous_critical
from mlm_lab.statistics.equivalence import equivalence_p
from mlm_lab.statistics.multiplicity import holm
from mlm_lab.statistics.pairing import pairing
from mlm_lab.statistics.pairs import Pair, mean_difference, pair_up
from mlm_lab.statistics.permutation import MOST, sign_flip_p
from mlm_lab.statistics.power import detectable_distance, smallest_p
from mlm_lab.statistics.proportions import Proportion
from mlm_lab.statistics.scores import Scores, undefined_seeds, without_seeds
from mlm_lab.statistics.spread import spread_beside
from mlm_lab.statistics.student import critical, two_sided_p
from mlm_lab.statistics.trend import Trend, trend
from mlm_lab.statistics.verdict import not_compared, verdict


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One arm minus the baseline. What cannot be said is None; `verdict` then says why."""

    arm: str
    primary: bool
    n: int
    """Seeds that both have."""
    difference: float | None
    """Arm minus baseline, in the metric's unit, whichever way is better."""
    standard_error: float | None = None
    degrees_of_freedom: int | None = None
    low: float | None = None
    """Of the interval for this difference alone."""
    high: float | None = None
    simultaneous_low: float | None = None
    """Of the interval that holds for all arms at once (Dunnett's, with the correlation of the design)."""
    simultaneous_high: float | None = None
    p: float | None = None
    """Two-sided, of this difference alone."""
    p_adjusted: float | None = None
    """Holm's over all but the primary contrast; the primary's own p."""
    p_own: float | None
    """Two-sided, by this pair's differences alone (paired t test), which asks for no common spread."""
    low_own: float | None
    """Of the interval that goes with it."""
    high_own: float | None
    spread_ratio: float | None
    """This pair's spread over that of the pool's other arms; None where there are no two of them."""
    spread_p: float | None
    """Of a spread so much larger than the others' by chance. Below the error rate, `p_own` is the one to believe."""
    p_permutation: float | None
    """Exact, from flipping the signs of the seeds' differences; None where too few seeds could reach the level."""
    smallest_p: float
    """The least that the permutation test can give with n seeds."""
    equivalence_p: float | None = None
    """Of two one-sided tests within the margin; Holm's over all but the primary contrast. None without a margin."""
    detectable: float | None = None
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
    """None where no two arms share a spread, or none can be told."""
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
        pilot_seeds: seeds that chose a metric or a rate, and so do not test it: neither their scores nor their states count. What is given
            in `excluded_from_pool` is to be counted without them.
    """
    if (margin is not None and not margin > 0) or primary == baseline:
        raise ValueError(f"margin {margin}, primary {primary}, baseline {baseline}")
    kept, flags = without_seeds(scores, pilot_seeds), without_seeds(left_plateau or {}, pilot_seeds)
    for arm in filter(None, (baseline, primary)):
        kept.setdefault(arm, {})
    excluded = _excluded(kept, flags, excluded_from_pool or {})
    pairs = pair_up(kept, baseline, excluded)
    family = _Family(pairs, primary, margin, 1 - level)
    return Comparison(
        baseline=baseline,
        level=level,
        margin=margin,
        arms={arm: describe(of_arm.values(), level) for arm, of_arm in kept.items()},
        contrasts=tuple(_contrast(pair, kept, baseline, family, higher_is_better, excluded) for pair in pairs),
        pool=_pool(pairs),
        trend=trend({arm: of_arm for arm, of_arm in kept.items() if of_arm}) if ordered else None,
        escaped=plateau.shares(flags, level),
        excluded=excluded,
    )


def _excluded(scores: Scores, left_plateau: plateau.Flags, given: Mapping[str, str]) -> dict[str, str]:
    """arm -> every reason why its spread is not that between seeds."""
    stuck = plateau.reasons(left_plateau)
    told = {}
    for arm, of_arm in scores.items():
        undefined = undefined_seeds(of_arm)
        no_score = f"no defined score with seed {', '.join(map(str, undefined))}" if undefined else None
        if reasons := list(filter(None, (stuck.get(arm), given.get(arm), no_score))):
            told[arm] = ", ".join(reasons)
    return told


class _Family:
    """The tests of all contrasts: which share the error rate, and what that makes of their p values and intervals."""

    def __init__(self, pairs: Sequence[Pair], primary: str | None, margin: float | None, alpha: float):
        self.primary, self.margin, self.alpha = primary, margin, alpha
        tested = [pair for pair in pairs if pair.estimate]
        self.p = {pair.arm: _p(pair.estimate) for pair in tested}
        self.adjusted = self._adjusted(lambda pair: self.p[pair.arm], tested)
        self.equivalence = {} if margin is None else self._adjusted(lambda pair: equivalence_p(pair.estimate, margin), tested)
        self.size, self.pooled = len(tested), sum(pair.pooled for pair in tested)
        self.others = sum(pair.arm != primary for pair in tested)

    def _adjusted(self, p: Callable[[Pair], float], tested: Sequence[Pair]) -> dict[str, float]:
        """Holm's over all but the primary contrast, which keeps its own."""
        values = {pair.arm: p(pair) for pair in tested}
        others = [arm for arm in values if arm != self.primary]
        return {**values, **dict(zip(others, holm([values[arm] for arm in others]), strict=True))}

    def simultaneous(self, pair: Pair) -> float:
        """Standard errors to either side, so that all intervals hold at once.

        The contrasts of the pool by Dunnett's distribution; each of those with a spread of their own has its part of the error rate, and so
        have the pool's together.
        """
        if not pair.pooled:
            return critical(pair.estimate.degrees_of_freedom, self.alpha / self.size)
        part = self.alpha * self.pooled / self.size
        return simultaneous_critical(self.pooled, pair.estimate.degrees_of_freedom, part, round(pair.blocks.correlation, 6))

    def detectable(self, pair: Pair) -> float:
        """With the spread seen, at the step of Holm's that asks most."""
        shared = 1 if pair.arm == self.primary else self.others
        return pair.estimate.standard_error * detectable_distance(pair.estimate.degrees_of_freedom, self.alpha / shared)


def _p(estimate: Estimate) -> float:
    return two_sided_p(estimate.difference / estimate.standard_error, estimate.degrees_of_freedom)


def _contrast(pair: Pair, scores: Scores, baseline: str, family: _Family, higher_is_better: bool, excluded: Mapping[str, str]) -> Contrast:
    n, arm, estimate = len(pair.seeds), pair.arm, pair.estimate
    seen = None if pair.differences is None else pairing(scores[arm], scores[baseline])
    own = pair.own if pair.own and pair.own.standard_error > 0 else None
    others = {name: scores[name] for name in pair.blocks.arms if name not in (arm, baseline)} if own and pair.pooled else {}
    spread = spread_beside(others, own, n) if others else None
    flips = pair.differences is not None and smallest_p(n) < family.alpha and n <= MOST
    contrast = Contrast(
        arm=arm,
        primary=arm == family.primary,
        n=n,
        difference=estimate.difference if estimate else mean_difference(pair),
        p_own=own and _p(own),
        low_own=own and own.difference - critical(own.degrees_of_freedom, family.alpha) * own.standard_error,
        high_own=own and own.difference + critical(own.degrees_of_freedom, family.alpha) * own.standard_error,
        spread_ratio=spread and spread.ratio,
        spread_p=spread and spread.p,
        p_permutation=sign_flip_p(pair.differences) if flips else None,
        smallest_p=smallest_p(n),
        paired_correlation=seen and seen.correlation,
        pairing_gain=seen and seen.gain,
        pooled=pair.pooled,
        excluded=excluded.get(arm),
        verdict=not_compared(pair.reason),
    )
    if estimate is None:
        return contrast
    half = critical(estimate.degrees_of_freedom, family.alpha) * estimate.standard_error
    wide = family.simultaneous(pair) * estimate.standard_error
    equivalence, detectable = family.equivalence.get(arm), family.detectable(pair)
    return replace(
        contrast,
        standard_error=estimate.standard_error,
        degrees_of_freedom=estimate.degrees_of_freedom,
        low=estimate.difference - half,
        high=estimate.difference + half,
        simultaneous_low=estimate.difference - wide,
        simultaneous_high=estimate.difference + wide,
        p=family.p[arm],
        p_adjusted=family.adjusted[arm],
        equivalence_p=equivalence,
        detectable=detectable,
        verdict=verdict(
            difference=estimate.difference,
            p=family.adjusted[arm],
            equivalence_p=equivalence,
            margin=family.margin,
            higher_is_better=higher_is_better,
            alpha=family.alpha,
            n=n,
            detectable=detectable,
            barred=pair.barred,
            because=pair.because,
        ),
    )


def _pool(pairs: Sequence[Pair]) -> Pool | None:
    blocks = next((pair.blocks for pair in pairs if pair.pooled), None)
    if blocks is None:
        return None
    return Pool(arms=blocks.arms, std=blocks.std, degrees_of_freedom=blocks.degrees_of_freedom, pairing_gain=blocks.gain)
