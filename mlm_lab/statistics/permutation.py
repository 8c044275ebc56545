"""The exact paired permutation test: flip the sign of each seed's difference, all ways (Fisher 1935).

It assumes nothing about the distribution, and pays for it: with n seeds no p lies below 2 / 2^n, so that 3 seeds cannot go below .25
(traps.md 34). Own code: scipy.stats.permutation_test lays out every pattern, which ends at some twenty seeds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST = 40
"""Seeds up to which every pattern is counted, in two halves."""
ROUNDING = 1e-12


def sign_flip_p(differences: Sequence[float]) -> float:
    """Two-sided: share of the 2^n sign patterns whose sum is at least as far from zero as the one seen, which counts itself.

    ValueError for no differences or more than 40.
    """
    if not 0 < len(differences) <= MOST:
        raise ValueError(f"{len(differences)} differences")
    values = np.asarray(differences, dtype=float)
    half = len(values) // 2
    first, second = _sums(values[:half]), np.sort(_sums(values[half:]))
    bound = abs(values.sum()) - ROUNDING * np.abs(values).sum()  # equal sums that rounding told apart are equal
    if bound <= 0:
        return 1.0
    above = len(second) - np.searchsorted(second, bound - first, side="left")
    return 2 * int(above.sum()) / 2 ** len(values)  # as many patterns lie below, sign for sign


def _sums(values: np.ndarray) -> np.ndarray:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return sums
