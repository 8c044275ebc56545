"""Length phases: a run as stretches of steps, each with rows of one length (BERT: 128 tokens for 90 % of the steps, then 512 for the
position embeddings that are left; Devlin et al. 2019, appendix A.2).

    length_phases: [[128, 0.9], [512, 0.1]]      1,000,000 steps of 256 sequences: 4.26e10 positions (512 throughout: 1.31e11)

    step     0 ............... 900,000 ... 1,000,000
    rows     of 128            of 512

Each phase lays out the store anew, with its own order and draws, from its first step on. So the run stays a map from step to batch. Its
length comes from the budget by the average step: a budget in tokens or FLOPs is spent by all phases together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mlm_lab.run_config import RunConfig


class Phase(NamedTuple):
    """Steps with rows of one length."""

    number: int
    """From 0."""
    max_length: int
    share: float
    """Of the run's steps."""
    batch_size: int
    """Sequences of a step, over all ranks."""


def phases_of(config: RunConfig) -> tuple[Phase, ...]:
    """The phases that a config asks for: one, where it names none."""
    given = config.length_phases or ((config.max_length, 1.0),)
    return tuple(Phase(number, row[0], row[1], row[2] if len(row) == 3 else config.batch_size) for number, row in enumerate(given))


def borders(phases: Sequence[Phase], total_steps: int) -> list[int]:
    """The first step of each phase, and total_steps: as the shares say, to the nearest step."""
    shares = accumulate((phase.share for phase in phases[:-1]), initial=0.0)
    return [*(min(round(share * total_steps), total_steps) for share in shares), total_steps]


def steps_until(phases: Sequence[Phase], total_steps: int, step: int) -> list[int]:
    """How many of the run's first `step` steps each phase has."""
    edges = borders(phases, total_steps)
    return [min(max(step - first, 0), last - first) for first, last in pairwise(edges)]


def phase_at(phases: Sequence[Phase], total_steps: int, step: int) -> Phase:
    """The phase that a step of the run belongs to."""
    return phases[bisect_right(borders(phases, total_steps)[1:-1], step)]


def examples_until(phases: Sequence[Phase], total_steps: int, step: int) -> int:
    """Sequences of the first `step` steps, over all ranks."""
    return sum(count * phase.batch_size for count, phase in zip(steps_until(phases, total_steps, step), phases, strict=True))
