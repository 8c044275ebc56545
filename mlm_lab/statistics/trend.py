"""A trend over ordered arms, by the ranks within each seed (Page, JASA 1963)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlm_lab.statistics.scores import Scores, counted, undefined_seeds

FEWEST_ARMS, FEWEST_SEEDS = 3, 2


@dataclass(frozen=True, kw_only=True)
class Trend:
    """Whether the score moves one way along the arms."""

    direction: Literal["rising", "falling", "none"]
    statistic: float | None
    """Page's L, for the direction seen."""
    p: float | None
    """Two-sided: twice that of the direction seen."""
    n: int
    """Seeds that have every arm."""
    arms: int
    smallest_p: float | None
    """The least that so many seeds and arms can give."""
    exact: bool
    """From all rank orders; else from the normal approximation. Ties within a seed make it approximate."""
    reason: str | None
    """Why there is no p."""


def trend(scores: Scores) -> Trend:
    """Page's test over the arms as listed and the seeds that have all of them. Needs 3 arms and 2 seeds, every score defined.

    Runs on the plateau count with their rank, as they count in the main table.
    """
    seeds = [seed for seed in next(iter(scores.values()), {}) if all(seed in of_arm for of_arm in scores.values())]
    undefined = [f"{arm} with seed {seed}" for arm, of_arm in scores.items() for seed in undefined_seeds(of_arm) if seed in seeds]
    if len(scores) < FEWEST_ARMS or len(seeds) < FEWEST_SEEDS:
        needed = f"a trend needs {FEWEST_ARMS} and {FEWEST_SEEDS}"
        return _none(scores, seeds, f"{counted(len(scores), 'arm')} and {counted(len(seeds), 'seed')} that have them all: {needed}")
    if undefined:
        return _none(scores, seeds, f"undefined score: {', '.join(undefined)}")
    from scipy import stats

    table = np.array([[of_arm[seed] for of_arm in scores.values()] for seed in seeds])
    ranks = stats.rankdata(table, axis=1)
    places = np.arange(1, len(scores) + 1)
    excess = float((ranks * places).sum()) - len(seeds) * len(scores) * (len(scores) + 1) ** 2 / 4
    tied = any(len(set(row)) < len(row) for row in table.tolist())
    result = stats.page_trend_test(table if excess >= 0 else table[:, ::-1])
    return Trend(
        direction="rising" if excess > 0 else "falling" if excess < 0 else "none",
        statistic=float(result.statistic),
        p=min(1.0, 2 * float(result.pvalue)),
        n=len(seeds),
        arms=len(scores),
        smallest_p=smallest_trend_p(len(seeds), len(scores)),
        exact=result.method == "exact" and not tied,
        reason=None,
    )


def smallest_trend_p(seeds: int, arms: int) -> float:
    """The least two-sided p: every seed ranks the arms in one order, of arms! orders each."""
    return min(1.0, 2 * math.factorial(arms) ** -float(seeds))


def _none(scores: Scores, seeds: list[int], reason: str) -> Trend:
    return Trend(direction="none", statistic=None, p=None, n=len(seeds), arms=len(scores), smallest_p=None, exact=False, reason=reason)
