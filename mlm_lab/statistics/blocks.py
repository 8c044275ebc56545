"""Randomised blocks: score = arm + seed + residual, so that what a seed does to every arm does not blur the arms' differences.

Runs with the same seed share initial weights (where the shapes are equal), data order and nested masks; a seed is a block. Cells may be
missing (a run that failed or is not there yet): least squares within the blocks then uses what there is, and nothing is filled in. With
two arms this is the paired t test, with all cells the usual two-way analysis of variance without interaction (Montgomery, Design and
Analysis of Experiments, chapter 4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

ROUNDING = 1e-12
"""Spread below this share of the scores' size is that of floating point."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A difference and how well it is known."""

    difference: float
    standard_error: float
    degrees_of_freedom: int


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Arms that share a residual spread."""

    arms: tuple[str, ...]
    std: float
    """Residual, of one run; nan without degrees of freedom, 0 where the scores follow arm + seed to the last digit."""
    degrees_of_freedom: int
    estimates: Mapping[str, Estimate]
    """arm -> minus the baseline; arms that no chain of common seeds connects with the baseline are missing."""
    correlation: float
    """The least between two of the estimates: 1/2 with all cells. Taking it for all of them widens what is simultaneous, never narrows."""
    gain: float | None
    """Relative efficiency against an unpaired design of the same size, with all cells and some residual spread."""


def fit_blocks(scores: Mapping[str, Mapping[int, float]], baseline: str) -> Blocks:
    """Least squares within blocks. Every score finite, the baseline among the arms."""
    arms = list(scores)
    cells = [(arm, seed, value) for arm, of_arm in scores.items() for seed, value in of_arm.items()]
    seeds = sorted({seed for _, seed, _ in cells})
    design = np.zeros((len(cells), len(arms)))
    values = np.array([value for _, _, value in cells], dtype=float)
    for row, (arm, _, _) in enumerate(cells):
        design[row, arms.index(arm)] = 1
    largest = np.abs(values).max(initial=0)
    for seed in seeds:
        rows = [row for row, cell in enumerate(cells) if cell[1] == seed]
        design[rows] -= design[rows].mean(axis=0)
        values[rows] -= values[rows].mean()

    information = design.T @ design
    inverse = np.linalg.pinv(information, hermitian=True)
    effects = inverse @ design.T @ values
    rank = int(np.linalg.matrix_rank(information, hermitian=True))
    freedom = len(cells) - len(seeds) - rank
    std = _deviation(values - design @ effects, freedom, largest)

    connected = _connected(scores, baseline)
    others = [arm for arm in arms if arm in connected and arm != baseline]
    contrasts = np.zeros((len(others), len(arms)))
    contrasts[:, arms.index(baseline)] = -1
    for row, arm in enumerate(others):
        contrasts[row, arms.index(arm)] = 1
    covariance = contrasts @ inverse @ contrasts.T
    estimates = {
        arm: Estimate(
            difference=float(contrasts[row] @ effects), standard_error=std * math.sqrt(covariance[row, row]), degrees_of_freedom=freedom
        )
        for row, arm in enumerate(others)
    }
    return Blocks(
        arms=tuple(arms),
        std=std,
        degrees_of_freedom=freedom,
        estimates=estimates,
        correlation=_least_correlation(covariance),
        gain=_gain(scores, std) if len(cells) == len(arms) * len(seeds) else None,
    )


def _deviation(residuals: np.ndarray, freedom: int, largest: float) -> float:
    if freedom == 0:
        return math.nan
    if np.abs(residuals).max() <= ROUNDING * largest:
        return 0.0
    return math.sqrt(float(residuals @ residuals) / freedom)


def _connected(scores: Mapping[str, Mapping[int, float]], baseline: str) -> set[str]:
    """Arms that a chain of common seeds leads to from the baseline."""
    found, seeds = {baseline}, set(scores[baseline])
    while new := {arm for arm, of_arm in scores.items() if arm not in found and not seeds.isdisjoint(of_arm)}:
        found |= new
        seeds |= {seed for arm in new for seed in scores[arm]}
    return found


def _least_correlation(covariance: np.ndarray) -> float:
    if len(covariance) < 2:
        return 0.5
    deviations = np.sqrt(np.diag(covariance))
    correlations = covariance / np.outer(deviations, deviations)
    return float(max(0.0, correlations[~np.eye(len(covariance), dtype=bool)].min()))


def _gain(scores: Mapping[str, Mapping[int, float]], std: float) -> float | None:
    """Fisher's relative efficiency: the spread that the same runs would have with seeds drawn anew for each arm, over the residual one."""
    table = np.array([[of_arm[seed] for seed in sorted(of_arm)] for of_arm in scores.values()])
    arms, seeds = table.shape
    if not std > 0:
        return None
    between = arms * float(table.mean(axis=0).var(ddof=1))
    return ((seeds - 1) * between + seeds * (arms - 1) * std**2) / ((seeds * arms - 1) * std**2)
