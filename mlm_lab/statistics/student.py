"""Student's t: the one distribution that the intervals, tests and power figures of this package stand on.

scipy.special alone, imported when needed: scipy.stats takes a second to import, and a report has to start at once.
"""

from __future__ import annotations

import math

import numpy as np


def two_sided_p(t: float, degrees_of_freedom: float) -> float:
    """Probability of a value at least this far from zero."""
    from scipy.special import stdtr

    return float(2 * stdtr(degrees_of_freedom, -abs(t)))


def upper_p(t: float, degrees_of_freedom: float) -> float:
    """Probability of a value of at least `t`."""
    from scipy.special import stdtr

    return float(stdtr(degrees_of_freedom, -t))


def upper_f_p(ratio: float, above: int, below: int) -> float:
    """Probability that the ratio of two variances, of so many degrees of freedom, is at least this where both estimate one (F)."""
    from scipy.special import fdtrc

    return float(fdtrc(above, below, ratio))


def critical(degrees_of_freedom: float, alpha: float) -> float:
    """The value that |t| exceeds with probability `alpha`."""
    from scipy.special import stdtrit

    return float(-stdtrit(degrees_of_freedom, alpha / 2))


def spread_nodes(degrees_of_freedom: int, finest: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """The estimated spread over the true one, as nodes and weights: sum(weights * f(nodes)) is the mean of f over it.

    Laid out in equal steps of its logarithm, at most `finest` wide: its density falls off on both sides so fast that the sum is as good as
    the integral where f changes little within a step (checked to 1e-9).
    """
    step = min(finest, 0.3 / math.sqrt(degrees_of_freedom))
    logarithms = np.arange(-(32 / degrees_of_freedom + 0.5), math.sqrt(32 / degrees_of_freedom), step)
    density = np.exp(degrees_of_freedom * (logarithms - np.expm1(2 * logarithms) / 2))
    return np.exp(logarithms), density / density.sum()
