"""Intervals that hold for all arms at once: the multivariate t of comparisons with one baseline (Dunnett, JASA 1955).

With one correlation between any two comparisons (1/2 where all cells are there: they share the baseline's runs) the multivariate t is a
double integral over the baseline's error and the estimated spread. It is summed on a grid, without random numbers, so that a table is the
same every time. (scipy.stats.dunnett takes independent samples, not blocks, and integrates by random numbers.)
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from mlm_lab.statistics.student import critical, spread_nodes

BISECTIONS = 45


@lru_cache(maxsize=4096)
def simultaneous_critical(comparisons: int, degrees_of_freedom: int, alpha: float, correlation: float = 0.5) -> float:
    """The value that the largest |t| of the comparisons exceeds with probability `alpha`.

    Lies between Student's for one comparison and Bonferroni's, and falls with the correlation.
    """
    low, high = critical(degrees_of_freedom, alpha), critical(degrees_of_freedom, alpha / comparisons)
    if comparisons == 1:
        return low
    inside = _Inside(comparisons, degrees_of_freedom, correlation)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < 1 - alpha else (low, middle)
    return high


class _Inside:
    """Probability that every |t| is at most a bound, for nodes of the two integrals that are laid out once."""

    def __init__(self, comparisons: int, freedom: int, correlation: float):
        spread, self.spread_weights = spread_nodes(freedom)
        self.spread = spread[:, None]
        baseline = np.arange(-8.5, 8.51, 0.125)
        density = np.exp(-(baseline**2) / 2)
        self.shift, self.baseline_weights = math.sqrt(correlation) * baseline, density / density.sum()
        self.own, self.comparisons = math.sqrt(1 - correlation), comparisons

    def __call__(self, bound: float) -> float:
        from scipy.special import ndtr

        reach = bound * self.spread
        one = ndtr((self.shift + reach) / self.own) - ndtr((self.shift - reach) / self.own)
        return float(self.spread_weights @ (one**self.comparisons) @ self.baseline_weights)
