"""What a downstream task is: a frozen config dataclass that checks its input, loads labelled examples and names its metrics.

    conf/task/<name>.yaml -> Task.check(evaluation)              cheap, before anything is prepared
                             Task.load(evaluation, cache_dir)    -> TaskData: train, dev, further parts
                             finetune                            one cell for each seed and start (pretrained, floor)
                             Task.metrics, Task.baselines(data)  what is reported, and beside what

A task is added by a subclass in evaluation/tasks/ and a YAML file; nothing else knows its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from mlm_lab.errors import require

if TYPE_CHECKING:
    from mlm_lab.evaluation.settings import Evaluation

Kind = Literal["classification", "regression", "tagging"]


class SequenceExample(NamedTuple):
    """A text, or a pair of texts, with one label."""

    text_a: str
    text_b: str | None
    label: int | float
    """Index into `TaskData.label_names`, or the value to predict (regression)."""


class TaggedExample(NamedTuple):
    """A sentence of words with a tag each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    """IOB2, whatever the file had ("B-PER", "I-PER", "O"); or plain classes without a prefix ("NOUN")."""
    document: tuple[tuple[str, ...], ...] = ()
    """The words of every sentence of its document, shared by them all; (): the sentence is read alone."""
    place: int = 0
    """Which of the document's sentences it is."""


@dataclass(frozen=True)
class TaskData:
    """The labelled examples of a task."""

    kind: Kind
    label_names: tuple[str, ...]
    """classification: the classes, in the order of their indices. tagging: every tag of train and evaluated parts. regression: ()."""
    train: Sequence[SequenceExample] | Sequence[TaggedExample]
    dev: Sequence[SequenceExample] | Sequence[TaggedExample]
    """What the task's metrics are reported on."""
    extra: dict[str, Sequence] = field(default_factory=dict)
    """Further evaluated parts by name (MNLI "mismatched", NER "test"): reported as "<part>/<metric>", never mixed with dev."""
    notes: tuple[str, ...] = ()
    """What a person should know about these examples (a dev part that was cut, examples that were skipped)."""

    @property
    def parts(self) -> dict[str, Sequence]:
        """Every evaluated part; dev first, under the name ""."""
        return {"": self.dev, **self.extra}


@dataclass(frozen=True, kw_only=True)
class Task:
    """Base of every task: its name and what it changes about fine-tuning. A field that is null takes the value of `evaluation`."""

    name: str
    """The task's name in evaluation.tasks, in the tables and in the run folder."""
    epochs: int | None
    """Passes over the training examples."""
    steps: int | None
    """Optimiser steps, in place of epochs."""
    learning_rate: float | None
    """Peak learning rate of the pretrained encoder and its head."""
    batch_size: int | None
    """Examples of an optimiser step."""
    max_length: int | None
    """Tokens of an example, special tokens included; longer ones are cut and counted."""

    def __post_init__(self) -> None:
        require(
            ("epochs", self.epochs, self.epochs is None or self.epochs > 0, "null or at least 1"),
            ("steps", self.steps, self.steps is None or (self.steps > 0 and self.epochs is None), "null or at least 1, and epochs null"),
            ("learning_rate", self.learning_rate, self.learning_rate is None or self.learning_rate > 0, "null or above 0"),
            ("batch_size", self.batch_size, self.batch_size is None or self.batch_size > 0, "null or at least 1"),
            ("max_length", self.max_length, self.max_length is None or self.max_length >= 8, "null or at least 8"),
        )

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names known to mlm_lab.evaluation.metrics, the main one first; empty: those that suit the kind of data."""
        return ()

    def pools(self, evaluation: Evaluation) -> bool:
        """Whether its head reads one vector of each example, as evaluation.pooling says, and not one of each word."""
        return True

    @property
    def feature_based(self) -> bool:
        """Whether the encoder stays frozen and a BiLSTM reads its last layers (tagging only)."""
        return False

    def check(self, evaluation: Evaluation) -> None:
        """Refuse, before anything is prepared, what cannot be loaded later. Cheap: looks at files, does not read them.

        Raises:
            UserError: a file is missing, or the hub would be needed and cannot be reached.
        """

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        """Read the examples. Deterministic; `train` in file order.

        Raises:
            UserError: a line that cannot be read, a label that the task does not know (file and line named).
        """
        raise NotImplementedError

    def baselines(self, data: TaskData) -> dict[str, dict[str, float]]:
        """Simple methods to stand beside the encoder on dev: name -> {metric: value}."""
        return {}
