"""What a number of seeds can show: the smallest attainable p, the detectable difference, the seeds that a difference needs."""

from __future__ import annotations

from dataclasses import dataclass

POWER = 0.8
"""Share of studies that would show the detectable difference."""


def smallest_p(seeds: int) -> float:
    """The least two-sided p of an exact paired permutation test: 2 of 2^seeds sign patterns (.25 with 3 seeds, .0625 with 5)."""
    return min(1.0, 2.0 ** (1 - seeds))


def detectable_difference(
    std: float, seeds: int, arms: int = 2, *, level: float = 0.95, power: float = POWER, comparisons: int = 1
) -> float | None:
    """Difference from the baseline that a study of `arms` arms (the baseline counted) and `seeds` seeds shows with probability `power`.

    std: of one run about its arm and its seed (`Pool.std`, `Pilot.std`); 1 gives the difference in such deviations.
    comparisons: contrasts that share the error rate; 1 for the primary one. None with one seed, which shows none.
    """
    raise NotImplementedError


def seeds_needed(std: float, difference: float, arms: int = 2, *, level: float = 0.95, power: float = POWER, comparisons: int = 1) -> int:
    """The fewest seeds whose detectable difference is at most `difference`. ValueError unless the difference is above zero."""
    raise NotImplementedError


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
    """With 80 % power; in the unit of `std`, or in residual standard deviations where it is 1."""
    detectable_others: float | None
    """The same for the other contrasts, at Holm's strictest step; None where there are none."""

    def lines(self) -> list[str]:
        """For `--plan`."""
        raise NotImplementedError


def attainable(seeds: int, arms: int, level: float = 0.95, *, std: float | None = None) -> Attainable:
    """Summary for a planned grid. std: of one run about arm and seed, from a pilot; else differences are in such deviations."""
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The spread that a pilot saw, and how well it knows it."""

    std: float
    """Of one run about its arm and its seed; of one run about its arm where the pilot has one arm."""
    std_high: float
    """Upper 80 % limit (Browne, Statistics in Medicine 1995): a plan made with it reaches its power in four cases of five."""
    degrees_of_freedom: int
    paired: bool
    """Whether seeds were taken out; one arm cannot tell, and overstates."""


def pilot(scores) -> Pilot | None:
    """Spread of a pilot's runs (arm -> seed -> score). None where nothing was repeated."""
    raise NotImplementedError
