"""How many tokens of a row are selected, and how many slots are set aside for them.

exact       round(ratio n), half to even, of the row's n candidates
bernoulli   Binomial(n, ratio): as if each candidate flipped its own coin
stochastic  floor(ratio n + u): exact in the mean, also for short rows

and the rule of BERT's script (google-research/bert, create_pretraining_data.py): min(limit, max(1, round(ratio length))), where the length
counts [CLS] and [SEP].

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
    candidates: np.ndarray, ratios: np.ndarray, mask_count: str, draws: Draws, epoch: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """(B, L) bool candidates, (B,) ratios -> (B,) int64 tokens to select."""
    total = candidates.sum(axis=1)
    if mask_count == "bernoulli":
        return ((draws.uniform(epoch, index, "count", candidates.shape[1]) < ratios[:, None]) & candidates).sum(axis=1)
    if mask_count == "stochastic":
        return np.floor(ratios * total + draws.uniform(epoch, index, "count", 1)[:, 0]).astype(np.int64)
    return np.rint(ratios * total).astype(np.int64)


def script_budgets(candidates: np.ndarray, lengths: np.ndarray, ratios: np.ndarray, limit: int) -> np.ndarray:
    """(B,) int64 tokens to select of rows of so many tokens, special ones counted, by the rule of BERT's script."""
    return np.minimum(np.clip(np.rint(ratios * lengths).astype(np.int64), 1, limit), candidates.sum(axis=1))


def slot_capacity(candidates: int, mask_ratio: float, mask_count: str, limit: int | None = None) -> int:
    """Slots that a row of at most so many candidates needs; at least one, so that no array is empty. mask_ratio: the largest of the run.

    limit: of the rule of BERT's script, for rows of two special tokens.
    """
    mean = mask_ratio * candidates
    if limit is not None:
        needed = min(limit, round(mask_ratio * (candidates + 2)))
    elif mask_count == "bernoulli":
        needed = ceil(mean + DEVIATIONS * sqrt(mean * (1 - mask_ratio)))
    elif mask_count == "stochastic":
        needed = ceil(mean)
    else:
        needed = round(mean)
    return max(1, min(needed, candidates))
