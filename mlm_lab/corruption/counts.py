"""How many tokens of a row are selected, and how many slots are set aside for them.

exact       round(ratio n), half to even, of the row's n candidates
bernoulli   Binomial(n, ratio): as if each candidate flipped its own coin
stochastic  floor(ratio n + u): exact in the mean, also for short rows

Budgets grow with the ratio under the same draws, which nested masks need.
"""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np

from mlm_lab.corruption.draws import Draws

MASK_COUNTS = ("exact", "bernoulli", "stochastic")
DEVIATIONS = 6
"""Standard deviations of slots above the mean: fewer rows than one in 10**8 overflow."""


def draw_budgets(
    candidates: np.ndarray, mask_ratio: float, mask_count: str, draws: Draws, epoch: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """(B, L) bool candidates -> (B,) int64 tokens to select."""
    total = candidates.sum(axis=1)
    if mask_count == "bernoulli":
        return ((draws.uniform(epoch, index, "count", candidates.shape[1]) < mask_ratio) & candidates).sum(axis=1)
    if mask_count == "stochastic":
        return np.floor(mask_ratio * total + draws.uniform(epoch, index, "count", 1)[:, 0]).astype(np.int64)
    return np.rint(mask_ratio * total).astype(np.int64)


def slot_capacity(candidates: int, mask_ratio: float, mask_count: str) -> int:
    """Slots that a row of at most so many candidates needs; at least one, so that no array is empty."""
    mean = mask_ratio * candidates
    if mask_count == "bernoulli":
        needed = ceil(mean + DEVIATIONS * sqrt(mean * (1 - mask_ratio)))
    elif mask_count == "stochastic":
        needed = ceil(mean)
    else:
        needed = round(mean)
    return max(1, min(needed, candidates))
