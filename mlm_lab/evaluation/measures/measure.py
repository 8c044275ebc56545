"""What a task does with a model: given one and a seed, it comes to metrics and to an answer for every evaluated example.

    Task.measure(data, evaluation, tokenizer, max_length) -> Measure       made once for all cells of a task
    Measure(subject, seed)                                -> Outcome       one cell

Fine-tuning is one (fine_tuning.py). Others train nothing, or a linear layer on frozen features.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lightning.fabric import Fabric
    from torch import nn

    from mlm_lab.tokenizers.loading import LoadedTokenizer
    from mlm_lab.types import ObjectiveModule


class Failed(ArithmeticError):
    """A cell came to no number for a reason that another seed or start may not have: it is recorded as failed, and the others go on."""


@dataclass(frozen=True)
class Subject:
    """The model that a cell is about."""

    start: str
    """Where its weights come from: one of `task.STARTS`."""
    module: ObjectiveModule
    """Encoder and pretraining heads, in evaluation mode on the CPU; shared by all cells, so that who trains or moves it takes a copy."""
    tokenizer: LoadedTokenizer
    fabric: Fabric
    """The device, and the precision of what is trained."""
    title: str
    """Task, start and seed, for a person who waits."""


@dataclass(frozen=True)
class Outcome:
    """What a cell came to."""

    metrics: dict[str, float | None]
    """name -> value; None where it is undefined. Those of a further part are PART/NAME."""
    predictions: list[dict]
    """The lines of predictions.jsonl: part, index (in the part), gold, prediction, for every evaluated example."""
    collapsed: bool = False
    """Whether the model gives every example the same answer (traps.md 33)."""
    facts: dict = field(default_factory=dict)
    """What else result.json says: how many examples, what was cut; `notes`, a list of lines that a person should read."""
    unlabelled: dict[str, list] = field(default_factory=dict)
    """Predictions of `TaskData.unlabelled`, by part."""
    encoder: nn.Module | None = None
    """The encoder as it came out of the measuring, where that trains it; another task may start from it."""


class Measure(Protocol):
    """How the cells of a task come to their outcomes."""

    def settings(self, subject: Subject) -> dict:
        """What it will do to this subject, for result.json. Known before it starts, so that a failed cell says it too."""

    def __call__(self, subject: Subject, seed: int) -> Outcome:
        """Measure. The same arguments give the same outcome on the same machine.

        Raises:
            Failed: there is no number.
            UserError: what is asked for cannot be measured on such a model.
        """
