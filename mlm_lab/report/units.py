"""In which unit a metric is, what a setting lists, and how numbers are written."""

from __future__ import annotations

import math

_POINTS = ("accuracy", "f1", "matthews", "pearson", "spearman", "exact", "precision", "recall")
"""Ends of the names of scores that reach to 1, of which papers print a hundredfold."""
_UNITS = {"loss": "nats a token", "perplexity": "", "bits_per_character": "bits a character", "plateau_left_step": "steps"}

_MEANINGS = {"objective.replace_mix": "shares of the selected tokens that are masked, replaced by a random token, kept"}
"""Of config values that do not say it themselves."""


def unit_of(metric: str) -> str:
    """The unit in words; empty for a score without one."""
    return next((unit for end, unit in _UNITS.items() if metric.endswith(end)), "")


def meaning_of(key: str) -> str:
    """What the value of a config key lists, in words; empty where it needs none."""
    return _MEANINGS.get(key, "")


def scale_of(metric: str) -> int:
    """What a difference is multiplied with to be readable: 100 for scores that reach to 1 ("points"), else 1."""
    return 1 if metric.endswith(tuple(_UNITS)) else 100 if metric.endswith(_POINTS) or "/" in metric else 1


def score(value: float | None, sign: bool = False) -> str:
    """A score, a loss or a difference with four decimals; fewer where it is large."""
    if value is None or not math.isfinite(value):
        return "-"
    decimals = 4 if abs(value) < 100 else 2 if abs(value) < 10_000 else 0
    return f"{value:+.{decimals}f}" if sign else f"{value:.{decimals}f}"


def interval(low: float | None, high: float | None, sign: bool = False) -> str:
    """An interval; "to" between its ends, since both may have a minus."""
    return "-" if low is None or high is None else f"{score(low, sign)} to {score(high, sign)}"


def p_value(p: float | None) -> str:
    """A p value as papers print it."""
    if p is None:
        return "-"
    if p < 0.001:
        return "< 0.001"
    return f"{p:.4f}" if round(p, 3) == 0.05 else f"{p:.3f}"  # the side of the level that it is on has to be seen


def count(value: float | None) -> str:
    """A count with thousands apart: 3,000,128."""
    return "-" if value is None else f"{value:,.0f}"


def power_of_ten(value: float | None) -> str:
    """FLOPs: 5.52e+12."""
    return "-" if value is None else f"{value:.3g}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
