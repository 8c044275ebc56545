"""Learning-rate schedules: a factor of peak_lr as a pure function of the optimiser step, with the horizon from the budget.

Step 0 is the first update. Warm-up rises linearly from 1 / (w + 1) at step 0 to 1 at step w, so that no update is lost to a zero rate.
Own code: torch's schedulers count steps themselves, and a resumed run would have to give them their state back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mlm_lab.errors import require

Factor = Callable[[int], float]


def warmup_length(warmup_steps: float, horizon_steps: int) -> int:
    """Steps of warm-up: a number below 1 is a share of the horizon."""
    return min(round(warmup_steps * horizon_steps) if warmup_steps < 1 else int(warmup_steps), horizon_steps)


def _with_warmup(warmup_steps: float, horizon_steps: int, after: Callable[[float], float]) -> Factor:
    """Warm-up, then `after` of the share of the rest that has gone (0 at the end of the warm-up, 1 at the horizon and beyond)."""
    warmup = warmup_length(warmup_steps, horizon_steps)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return after(min((step - warmup) / max(horizon_steps - warmup, 1), 1.0))

    return factor


def _check_warmup(warmup_steps: float) -> tuple[str, object, bool, str]:
    holds = 0 <= warmup_steps < 1 or (warmup_steps >= 1 and float(warmup_steps).is_integer())
    return "warmup_steps", warmup_steps, holds, "a whole number of steps, or a share of the run in [0, 1)"


def _check_share(field: str, value: float) -> tuple[str, object, bool, str]:
    return field, value, 0 <= value <= 1, "in [0, 1]"


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Warm-up, then a straight line down to final_factor (BERT, RoBERTa)."""

    warmup_steps: float
    """Steps of warm-up; a value below 1 is a share of the run."""
    final_factor: float
    """Share of peak_lr at the end."""

    def __post_init__(self) -> None:
        require(_check_warmup(self.warmup_steps), _check_share("final_factor", self.final_factor))

    def build(self, horizon_steps: int) -> Factor:
        return _with_warmup(self.warmup_steps, horizon_steps, lambda gone: 1 + (self.final_factor - 1) * gone)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Warm-up, then half a cosine down to final_factor (Loshchilov & Hutter 2017)."""

    warmup_steps: float
    """Steps of warm-up; a value below 1 is a share of the run."""
    final_factor: float
    """Share of peak_lr at the end."""

    def __post_init__(self) -> None:
        require(_check_warmup(self.warmup_steps), _check_share("final_factor", self.final_factor))

    def build(self, horizon_steps: int) -> Factor:
        return _with_warmup(
            self.warmup_steps, horizon_steps, lambda gone: self.final_factor + (1 - self.final_factor) * (1 + math.cos(math.pi * gone)) / 2
        )


@dataclass(frozen=True, kw_only=True)
class WSD:
    """Warm-up, stable, decay: constant until the last decay_share of the run, then 1 - sqrt down to final_factor (Haegele et al. 2024)."""

    warmup_steps: float
    """Steps of warm-up; a value below 1 is a share of the run."""
    decay_share: float
    """Share of the run, at its end, in which the rate falls."""
    final_factor: float
    """Share of peak_lr at the end."""

    def __post_init__(self) -> None:
        require(
            _check_warmup(self.warmup_steps), _check_share("decay_share", self.decay_share), _check_share("final_factor", self.final_factor)
        )

    def build(self, horizon_steps: int) -> Factor:
        decay_steps = self.decay_share * horizon_steps
        rising = _with_warmup(self.warmup_steps, horizon_steps, lambda gone: 1.0)

        def factor(step: int) -> float:
            decayed = min(max((step - (horizon_steps - decay_steps)) / max(decay_steps, 1e-9), 0.0), 1.0)
            return rising(step) * (1 - (1 - self.final_factor) * math.sqrt(decayed))

        return factor


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Warm-up, then peak_lr."""

    warmup_steps: float
    """Steps of warm-up; a value below 1 is a share of the run."""

    def __post_init__(self) -> None:
        require(_check_warmup(self.warmup_steps))

    def build(self, horizon_steps: int) -> Factor:
        return _with_warmup(self.warmup_steps, horizon_steps, lambda gone: 1.0)
