"""How long a run is: one budget in the unit that the comparison is fair in, turned once into optimiser steps, the schedules' horizon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from mlm_lab.errors import require


@dataclass(frozen=True)
class StepFacts:
    """What an average optimiser step of a run costs, over all ranks."""

    tokens: float
    """Raw corpus tokens: special tokens and padding are not counted, and a text that is read twice counts twice."""
    flops: float
    """Forward and backward, in closed form."""
    seconds: Callable[[], float] | None
    """Measures the wall-clock time of a step on this machine; needed only where the budget is in hours."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Exactly one of the four is given."""

    steps: int | None
    """Optimiser steps."""
    tokens: float | None
    """Raw corpus tokens, special tokens and padding not counted."""
    flops: float | None
    """Training FLOPs in closed form (forward and backward, a multiply-add is two)."""
    hours: float | None
    """Wall-clock hours of training steps, turned into steps once by timing a few of them. The number is frozen in the run folder, and the
    time of a step shared with the runs of one output_dir whose steps cost the same (step_times.py)."""

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        require(
            ("steps|tokens|flops|hours", given or None, len(given) == 1, "exactly one of the four, the others null"),
            *((name, value, value > 0, "greater than 0") for name, value in given.items()),
        )

    def steps_for(self, facts: StepFacts) -> int:
        """Number of optimiser steps, at least 1, to the nearest step."""
        if self.steps is not None:
            return self.steps
        if self.tokens is not None:
            return max(1, round(self.tokens / facts.tokens))
        if self.flops is not None:
            return max(1, round(self.flops / facts.flops))
        return max(1, round(self.hours * 3600 / facts.seconds()))


BUDGETS = tuple(field.name for field in fields(Budget))
"""Its units."""
