"""A cell of the table: n, mean, standard deviation, median, and a t interval over pretraining seeds (traps.md 34)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from mlm_lab.statistics.scores import is_defined
from mlm_lab.statistics.student import critical


@dataclass(frozen=True, kw_only=True)
class Description:
    """A cell. What cannot be said is None: everything but n where a value is undefined; deviation and interval of one value."""

    n: int
    """Values, undefined ones included."""
    mean: float | None
    std: float | None
    """With n - 1."""
    median: float | None
    low: float | None
    """Of the interval for the mean over further seeds, from Student's t with n - 1 degrees of freedom."""
    high: float | None


def describe(values: Iterable[float | None], level: float = 0.95) -> Description:
    """n, mean, standard deviation, median, interval. An undefined value (None, nan, infinite) makes all but n undefined."""
    values = list(values)
    if not values or not all(map(is_defined, values)):
        return Description(n=len(values), mean=None, std=None, median=None, low=None, high=None)
    n, mean, median = len(values), statistics.fmean(values), statistics.median(values)
    if n == 1:
        return Description(n=n, mean=mean, std=None, median=median, low=None, high=None)
    std = statistics.stdev(values)
    half = critical(n - 1, 1 - level) * std / math.sqrt(n)
    return Description(n=n, mean=mean, std=std, median=median, low=mean - half, high=mean + half)
