"""The gate before a grid: did the runs of its extreme arms leave the unigram plateau? Read from run folders alone; imports nothing that
trains. Arms that sit on the plateau for the whole budget have no representations to compare (`training.plateau` says what it is)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mlm_lab.run_folder import RunFolder


class State(StrEnum):
    """Of a run at the gate."""

    LEFT = "left the plateau"
    STUCK = "still on the plateau"
    UNWATCHED = "has no plateau to leave"
    UNFINISHED = "not finished"


@dataclass(frozen=True)
class Passage:
    """A run at the gate."""

    state: State
    left_step: int | None
    """The look at which it had left."""
    steps: int | None
    """Optimiser steps of the run; None where it has not begun."""

    @classmethod
    def of(cls, folder: RunFolder) -> Passage:
        """A run that has left the plateau counts as left before it is finished. Raises UserError where the summary is damaged."""
        summary = folder.read_summary()
        metrics = summary.get("metrics", {})
        left, step, steps = metrics.get("left_plateau"), metrics.get("plateau_left_step"), summary.get("budget_steps")
        if left:
            return cls(State.LEFT, step, steps)
        if summary.get("status") != "finished":
            return cls(State.UNFINISHED, None, steps)
        return cls(State.UNWATCHED if left is None else State.STUCK, None, steps)

    def __str__(self) -> str:
        return str(self.state) if self.left_step is None else f"{self.state} by step {self.left_step:,} of {self.steps:,}"


@dataclass(frozen=True)
class Gate:
    """The runs of the extreme arms, by arm."""

    passages: Mapping[str, Passage]

    @property
    def is_open(self) -> bool:
        """Whether no arm is stuck and none is open to question."""
        return all(passage.state in (State.LEFT, State.UNWATCHED) for passage in self.passages.values())

    def lines(self) -> list[str]:
        """What to tell a person: a line for each arm."""
        return [f"{arm}: {passage}" for arm, passage in self.passages.items()]


def gate(runs: Mapping[str, RunFolder]) -> Gate:
    """runs: arm -> its run, begun or not."""
    return Gate({arm: Passage.of(folder) for arm, folder in runs.items()})
