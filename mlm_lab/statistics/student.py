"""Student's t: the one distribution that the intervals, tests and power figures of this package stand on.

scipy.special alone, imported when needed: scipy.stats takes a second to import, and a report has to start at once.
"""

from __future__ import annotations


def two_sided_p(t: float, degrees_of_freedom: float) -> float:
    """Probability of a value at least this far from zero."""
    from scipy.special import stdtr

    return float(2 * stdtr(degrees_of_freedom, -abs(t)))


def upper_p(t: float, degrees_of_freedom: float) -> float:
    """Probability of a value of at least `t`."""
    from scipy.special import stdtr

    return float(stdtr(degrees_of_freedom, -t))


def critical(degrees_of_freedom: float, alpha: float) -> float:
    """The value that |t| exceeds with probability `alpha`."""
    from scipy.special import stdtrit

    return float(-stdtrit(degrees_of_freedom, alpha / 2))
