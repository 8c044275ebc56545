"""More masks for rare tokens: weights from token counts, and how far the masks went towards rare ones.

A unit of weight w draws the time E / w, E exponential; those that come first are a weighted sample without replacement (Efraimidis &
Spirakis 2006). The order does not depend on how many are taken, so masks at a lower ratio stay subsets of those at a higher one.
"""

from __future__ import annotations

import numpy as np

FREQUENCY_BINS = 8


def frequency_weights(counts: np.ndarray, exponent: float) -> np.ndarray:
    """(V,) token counts -> (V,) float64 weights count^-exponent, 1 for the commonest token; a token that never occurs counts as one that
    occurs once."""
    return (counts.max(initial=1) / np.maximum(counts, 1)) ** exponent


def race_keys(ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(B, L) uint32 uniform ranks, (B, L) positive weights -> (B, L) uint32: the order of the exponential race, the smallest first.

    Positive floats are ordered as the integers that their bits spell.
    """
    times = -np.log1p(-(ranks + 0.5) * 2.0**-32) / weights
    return times.astype(np.float32).view(np.uint32)


def frequency_bins(counts: np.ndarray) -> np.ndarray:
    """(V,) token counts -> (V,) int64 bin of each token, 0 the commonest. Bins are of about as much text each, so that masks that do not
    look at frequency fall into all alike (as far as single tokens are not commoner than a bin)."""
    order = np.argsort(-counts, kind="stable")
    middle = np.cumsum(counts[order]) - counts[order] / 2
    bins = np.empty(len(counts), dtype=np.int64)
    bins[order] = np.minimum(middle * FREQUENCY_BINS // max(counts.sum(), 1), FREQUENCY_BINS - 1)
    return bins


def count_by_frequency(input_ids: np.ndarray, chosen: np.ndarray, bins: np.ndarray) -> np.ndarray:
    """(B, FREQUENCY_BINS) int64: the chosen tokens of each row in each bin. input_ids (B, L), chosen (B, L) bool, bins (V,)."""
    rows, columns = np.nonzero(chosen)
    cells = rows * FREQUENCY_BINS + bins[input_ids[rows, columns]]
    return np.bincount(cells, minlength=len(chosen) * FREQUENCY_BINS).reshape(len(chosen), FREQUENCY_BINS)
