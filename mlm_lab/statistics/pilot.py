"""The spread that a pilot saw, and how well it knows it: three runs tell a standard deviation within a factor of two to six."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlm_lab.statistics.blocks import fit_blocks
from mlm_lab.statistics.scores import Scores, undefined_seeds

UPPER = 0.8


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """What `power.seeds_needed` and `power.attainable` take from a pilot."""

    std: float
    """Of one run about its arm and its seed; about its arm alone where not paired."""
    std_high: float
    """Upper 80 % limit: a plan made with it reaches its power in four cases of five (Browne, Statistics in Medicine 1995)."""
    degrees_of_freedom: int
    paired: bool
    """Whether what the seed does to all arms was taken out. One arm cannot tell, and overstates."""


def pilot(scores: Scores) -> Pilot | None:
    """The spread of a pilot's runs, pooled over its arms. None where nothing was repeated or nothing varies.

    ValueError for an undefined score.
    """
    undefined = [f"{arm} with seed {seed}" for arm, of_arm in scores.items() for seed in undefined_seeds(of_arm)]
    if undefined:
        raise ValueError(f"undefined score: {', '.join(undefined)}")
    arms = {arm: of_arm for arm, of_arm in scores.items() if of_arm}
    if not arms:
        return None
    fit = fit_blocks(arms, next(iter(arms)))
    if fit.degrees_of_freedom > 0:
        return _pilot(fit.std, fit.degrees_of_freedom, paired=True)
    about = [value - math.fsum(of_arm.values()) / len(of_arm) for of_arm in arms.values() for value in of_arm.values()]
    freedom = len(about) - len(arms)
    return _pilot(math.sqrt(math.fsum(value**2 for value in about) / freedom), freedom, paired=False) if freedom else None


def _pilot(std: float, freedom: int, *, paired: bool) -> Pilot | None:
    from scipy.special import chdtri

    if std == 0:
        return None
    return Pilot(std=std, std_high=std * math.sqrt(freedom / float(chdtri(freedom, UPPER))), degrees_of_freedom=freedom, paired=paired)
