"""What a downstream task is: a frozen config dataclass that checks its input, loads its examples and says how models are measured on them.

    conf/task/<name>.yaml -> Task.check(evaluation)              cheap, before anything is prepared
                             Task.load(evaluation, cache_dir)    -> TaskData: train, dev, further parts
                             Task.starts, Task.seeds(...)        the cells: one for each of both
                             Task.settings(...)                  what there is to choose among, before they are measured
                             Task.measure(...)                   -> Measure: what is done in a cell (fine-tuning, a probe, scoring)
                             Task.metrics, Task.baselines(data)  what is reported, and beside what

A task is added by a subclass in evaluation/tasks/ and a YAML file; nothing else knows its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from mlm_lab.errors import require

if TYPE_CHECKING:
    from mlm_lab.evaluation.measures.measure import Measure
    from mlm_lab.evaluation.protocol import Setting
    from mlm_lab.evaluation.settings import Evaluation
    from mlm_lab.tokenizers.loading import LoadedTokenizer

PRETRAINED, FLOOR = STARTS = ("pretrained", "floor")
"""Where the weights of a cell's model come from: the run, or its random initialisation."""

Kind = Literal["classification", "regression", "tagging", "pairs", "texts", "answers"]
Check = tuple[str, object, bool, str]


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


class PairExample(NamedTuple):
    """A minimal pair of sentences."""

    good: str
    bad: str
    paradigm: str
    """What tells the two apart."""


class TextExample(NamedTuple):
    """A text without a label."""

    text: str


class AnsweredExample(NamedTuple):
    """A question about a text."""

    context: str
    question: str
    answers: tuple[str, ...]
    """What people marked in the text; (): the text has no answer."""
    start: int
    """Where in the text the first answer begins."""
    id: str


Example = SequenceExample | TaggedExample | PairExample | TextExample | AnsweredExample


@dataclass(frozen=True)
class TaskData:
    """The labelled examples of a task."""

    kind: Kind
    label_names: tuple[str, ...]
    """classification: the classes, in the order of their indices. tagging: every tag of train and evaluated parts. Others: ()."""
    train: Sequence[Example]
    dev: Sequence[Example]
    """What the task's metrics are reported on."""
    extra: dict[str, Sequence] = field(default_factory=dict)
    """Further evaluated parts by name (MNLI "mismatched", NER "test"): reported as "<part>/<metric>", never mixed with dev."""
    unlabelled: dict[str, Sequence] = field(default_factory=dict)
    """Parts that are predicted and not scored, by name: test sets whose labels a server keeps. Their labels say nothing."""
    notes: tuple[str, ...] = ()
    """What a person should know about these examples (a dev part that was cut, examples that were skipped)."""

    @property
    def parts(self) -> dict[str, Sequence]:
        """Every evaluated part; dev first, under the name ""."""
        return {"": self.dev, **self.extra}


@dataclass(frozen=True, kw_only=True)
class Task:
    """Base of every task. One that is fine-tuned inherits from `FineTunedTask`, one that the pretrained model answers as it is from
    `ScoredTask`, another says itself how it is measured."""

    name: str
    """The task's name in evaluation.tasks, in the tables and in the run folder."""
    max_length: int | None
    """Tokens of an example, special tokens included; longer ones are cut and counted."""

    def __post_init__(self) -> None:
        require(*self.checks())

    def checks(self) -> tuple[Check, ...]:
        """What `errors.require` takes; tasks add those of their own fields, so that all mistakes are told at once."""
        return (("max_length", self.max_length, self.max_length is None or self.max_length >= 8, "null or at least 8"),)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names known to mlm_lab.evaluation.metrics, the main one first; empty: those that suit the kind of data."""
        return ()

    def pools(self, evaluation: Evaluation) -> bool:
        """Whether its head reads one vector of each example, as evaluation.pooling says, and not one of each word."""
        return True

    @property
    def starts(self) -> tuple[str, ...]:
        """Which of `STARTS` the task is measured on, where evaluation.floor asks for the floor."""
        return STARTS

    def seeds(self, evaluation: Evaluation, first: int) -> Sequence[int]:
        """The seeds of its cells; `first` is seeds.finetune. A measure in which nothing is drawn needs one, and always the same."""
        return range(first, first + evaluation.seeds)

    def settings(self, evaluation: Evaluation, width: int, start: str) -> list[Setting]:
        """What to choose among, one where there is nothing to choose. width: of the encoder."""
        return [()]

    @property
    def reads_heads(self) -> bool:
        """Whether its measure uses more of the model than the encoder: floors are then shared by runs with the same heads only."""
        return False

    @property
    def ranked_within(self) -> tuple[str, ...]:
        """What has to be alike in two runs whose scores are ranked: "objective" (its kind), or config keys."""
        return ("objective",) if self.reads_heads else ()

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

    def measure(self, data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int) -> Measure:
        """What is done in each cell. Made once, where the first missing cell needs it: examples are encoded here.

        max_length: tokens of an example, special tokens included.
        """
        raise NotImplementedError

    def submission(self, data: TaskData, answers: Mapping[str, Sequence]) -> dict[str, str]:
        """Files for the server that keeps the labels of `data.unlabelled`: name -> text. answers: part -> its predictions."""
        return {}

    def baselines(self, data: TaskData) -> dict[str, dict[str, float]]:
        """Simple methods to stand beside the encoder on dev: name -> {metric: value}."""
        return {}


@dataclass(frozen=True, kw_only=True)
class ScoredTask(Task):
    """A task for the pretrained model as it is, heads included: nothing is trained or drawn."""

    def pools(self, evaluation: Evaluation) -> bool:
        return False

    @property
    def reads_heads(self) -> bool:
        return True

    def seeds(self, evaluation: Evaluation, first: int) -> Sequence[int]:
        return range(1)


@dataclass(frozen=True, kw_only=True)
class FineTunedTask(Task):
    """A task that the encoder is fine-tuned on, and what it changes about that. A field that is null takes the value of `evaluation`."""

    epochs: int | None
    """Passes over the training examples."""
    steps: int | None
    """Optimiser steps, in place of epochs."""
    learning_rate: float | None
    """Peak learning rate of the pretrained encoder and its head."""
    batch_size: int | None
    """Examples of an optimiser step."""

    def checks(self) -> tuple[Check, ...]:
        return (
            ("epochs", self.epochs, self.epochs is None or self.epochs > 0, "null or at least 1"),
            ("steps", self.steps, self.steps is None or (self.steps > 0 and self.epochs is None), "null or at least 1, and epochs null"),
            ("learning_rate", self.learning_rate, self.learning_rate is None or self.learning_rate > 0, "null or above 0"),
            ("batch_size", self.batch_size, self.batch_size is None or self.batch_size > 0, "null or at least 1"),
            *super().checks(),
        )

    def settings(self, evaluation: Evaluation, width: int, start: str) -> list[Setting]:
        own = [name for name in ("learning_rate", "batch_size", "epochs") if getattr(self, name) is not None]
        own += ["epochs"] if self.steps is not None else []
        peak_rate, fixed = self.learning_rate or evaluation.peak_rate(width), evaluation.protocol == "fixed"
        if start == FLOOR:
            rates = (peak_rate,) if fixed or "learning_rate" in own else evaluation.grid.rates(peak_rate)
            return [(("floor_learning_rate", rate),) for rate in evaluation.floor_learning_rate or rates]
        return [()] if fixed else evaluation.grid.settings(peak_rate, own)

    @property
    def feature_based(self) -> bool:
        """Whether the encoder stays frozen and a BiLSTM reads its last layers (tagging only)."""
        return False

    def measure(self, data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int) -> Measure:
        from mlm_lab.evaluation.measures.fine_tuning import FineTuning

        return FineTuning(self, data, evaluation, tokenizer, max_length)
