"""k of n runs: a share with its exact interval (Clopper and Pearson, Biometrika 1934).

By scipy.special, since scipy.stats, whose binomtest has the interval, takes a second to import (student.py).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Proportion:
    """k of n, the share (None of no runs at all), and the exact interval for it, which is all of 0 to 1 then."""

    k: int
    n: int
    share: float | None
    low: float
    high: float


def proportion(k: int, n: int, level: float = 0.95) -> Proportion:
    """k of n with an interval that covers at least `level` of the time, whatever the true share. ValueError unless 0 <= k <= n."""
    from scipy.special import betaincinv

    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n}")
    tail = (1 - level) / 2
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, tail))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - tail))
    return Proportion(k=k, n=n, share=k / n if n else None, low=low, high=high)
