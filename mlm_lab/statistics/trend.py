"""A trend over ordered arms, by the ranks within each seed (Page, JASA 1963)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlm_lab.statistics.scores import Scores


@dataclass(frozen=True, kw_only=True)
class Trend:
    """Whether the score moves one way along the arms."""

    direction: Literal["rising", "falling", "none"]
    statistic: float | None
    """Page's L, for the direction seen."""
    p: float | None
    """Two-sided: twice the smaller of the two directions'."""
    n: int
    """Seeds that have every arm."""
    arms: int
    smallest_p: float | None
    """The least that so many seeds and arms can give."""
    reason: str | None
    """Why there is no p."""


def trend(scores: Scores) -> Trend:
    """Page's test over the arms as listed, seeds that have all of them. Needs 3 arms and 2 seeds, every score defined."""
    raise NotImplementedError
