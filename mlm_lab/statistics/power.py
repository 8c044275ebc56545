"""What a number of seeds can show: the smallest attainable p, the detectable difference, the seeds that a difference needs.

Power is that of the two-sided t test, from the noncentral t distribution (Cohen, Statistical Power Analysis, 1988, chapter 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from mlm_lab.statistics.scores import counted
from mlm_lab.statistics.student import critical, spread_nodes

POWER = 0.8
"""Share of studies that would show the detectable difference."""
MOST_SEEDS = 1_000_000


def smallest_p(seeds: int) -> float:
    """The least two-sided p of an exact paired permutation test: 2 of 2^seeds sign patterns (.25 with 3 seeds, .0625 with 5)."""
    return min(1.0, 2.0 ** (1 - seeds))


def power_of(distance: float, degrees_of_freedom: int, alpha: float) -> float:
    """Probability that a two-sided t test of size `alpha` rejects, the true difference `distance` standard errors from zero.

    Summed here, because scipy's noncentral t (1.17) gives nan far in the tails, where few seeds put it.
    """
    from scipy.special import ndtr

    bound = critical(degrees_of_freedom, alpha)
    spread, weights = spread_nodes(degrees_of_freedom, finest=0.3 / max(3.0, distance))
    return float(weights @ (ndtr(distance - bound * spread) + ndtr(-distance - bound * spread)))


@lru_cache(maxsize=4096)
def detectable_distance(degrees_of_freedom: int, alpha: float, power: float = POWER) -> float:
    """The true difference, in standard errors, that a two-sided t test of size `alpha` shows with probability `power`."""
    low, high = 0.0, 1.0
    while power_of(high, degrees_of_freedom, alpha) < power:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if power_of(middle, degrees_of_freedom, alpha) < power else (low, middle)
    return high


def detectable_difference(
    std: float, seeds: int, arms: int = 2, *, level: float = 0.95, power: float = POWER, comparisons: int = 1
) -> float | None:
    """Difference from the baseline that a study of `arms` arms (the baseline counted) and `seeds` seeds shows with probability `power`.

    std: of one run about its arm and its seed (`Pool.std`, `Pilot.std`); 1 gives the difference in such deviations.
    comparisons: contrasts that share the error rate; 1 for the primary one. None with one seed, which shows none.
    """
    freedom = (arms - 1) * (seeds - 1)
    if freedom < 1:
        return None
    return std * math.sqrt(2 / seeds) * detectable_distance(freedom, (1 - level) / comparisons, power)


def seeds_needed(std: float, difference: float, arms: int = 2, *, level: float = 0.95, power: float = POWER, comparisons: int = 1) -> int:
    """The fewest seeds whose detectable difference is at most `difference`.

    ValueError unless the difference is above zero, and where not even a million seeds would do.
    """

    def shows(seeds: int) -> bool:
        return detectable_difference(std, seeds, arms, level=level, power=power, comparisons=comparisons) <= difference

    if not difference > 0 or not shows(MOST_SEEDS):
        raise ValueError(f"a difference of {difference:g} with a standard deviation of {std:g}")
    low, high = 1, 2
    while not shows(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high


@dataclass(frozen=True, kw_only=True)
class Attainable:
    """What a planned number of seeds and arms can show, before anything runs."""

    seeds: int
    arms: int
    """The baseline counted."""
    level: float
    degrees_of_freedom: int
    smallest_p: float
    """Of the permutation test."""
    seeds_for_permutation: int
    """The fewest with which a permutation test can reach 1 - level."""
    detectable_primary: float | None
    """With 80 % power; in the metric's unit, or in residual standard deviations without a pilot. None with one seed or one arm."""
    detectable_others: float | None
    """The same for each of the other contrasts, at Holm's strictest step; None where there are none."""
    from_pilot: bool

    def lines(self) -> list[str]:
        """For `--plan`: what such a grid can show, and what it cannot."""
        reached = self.smallest_p < 1 - self.level
        permutation = "" if reached else f", so none is made: p < {1 - self.level:.2g} needs {self.seeds_for_permutation} seeds"
        lines = [
            f"{counted(self.arms, 'arm')}, {counted(self.seeds, 'seed')}: {self.degrees_of_freedom} degrees of freedom for the spread",
            f"permutation test: smallest attainable p {self.smallest_p:.2g}{permutation}",
        ]
        if self.detectable_primary is None:
            why = "nothing is repeated" if self.seeds < 2 else "there is one arm"
            return [*lines, f"detectable difference: none, for {why}"]
        unit = "" if self.from_pilot else ", in standard deviations of a run about its arm and seed"
        others = "" if self.detectable_others is None else f", {self.detectable_others:.3g} by each of the others (Holm)"
        return [*lines, f"detectable difference (power {POWER:.0%}{unit}): {self.detectable_primary:.3g} by the primary contrast{others}"]


def attainable(seeds: int, arms: int, level: float = 0.95, *, std: float | None = None) -> Attainable:
    """Summary for a planned grid, one contrast of which is the primary one. std: of one run about arm and seed, from a pilot."""
    unit, others = 1.0 if std is None else std, arms - 2
    return Attainable(
        seeds=seeds,
        arms=arms,
        level=level,
        degrees_of_freedom=(arms - 1) * (seeds - 1),
        smallest_p=smallest_p(seeds),
        seeds_for_permutation=next(n for n in range(1, 1024) if smallest_p(n) < 1 - level),
        detectable_primary=detectable_difference(unit, seeds, arms, level=level),
        detectable_others=detectable_difference(unit, seeds, arms, level=level, comparisons=others) if others > 0 else None,
        from_pilot=std is not None,
    )
