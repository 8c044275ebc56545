"""Sentences of the Python documentation as material for labelled examples: training from some modules, dev from others.

The dev part comes from the modules that the pydocs corpus holds out (its `validation` split at the default share), which pretraining
on it never sees unless data.validation_share is set below that default. A dev sentence that also stands in a training module, apart from
case, digits and punctuation, is left out. Which sentences are used, and every draw that makes an example of one, depends on (task,
sentence) alone: the order of the entries and the process do not matter.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlm_lab.data.corpora import pydocs
from mlm_lab.errors import UserError
from mlm_lab.evaluation.task import Check, FineTunedTask, TaskData

if TYPE_CHECKING:
    from mlm_lab.data.corpora.pydocs import Entry
    from mlm_lab.evaluation.settings import Evaluation

_LETTERS = re.compile(r"[^\W\d_]+")


class Sentence(NamedTuple):
    """A sentence and the docstring that it stands in."""

    text: str
    entry: Entry


@dataclass(frozen=True, kw_only=True)
class PydocsTask(FineTunedTask):
    """Base of the tasks that are made from the Python documentation on this machine."""

    train_examples: int
    """Training examples at most."""
    dev_examples: int
    """Dev examples at most."""

    def checks(self) -> tuple[Check, ...]:
        return (
            *super().checks(),
            ("train_examples", self.train_examples, self.train_examples >= 2, "at least 2"),
            ("dev_examples", self.dev_examples, self.dev_examples >= 2, "at least 2"),
        )

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        """Make the examples from the documentation that the pydocs corpus reads.

        Raises:
            UserError: the documentation on this machine gives no example of one of the parts.
        """
        data = self.build(pydocs.read_entries(cache_dir))
        if not data.train or not data.dev:
            raise UserError(
                f"{self.name}: the Python documentation on this machine gives no examples",
                given=f"{len(data.train)} training examples, {len(data.dev)} dev examples",
                allowed="at least one of each",
                fix="leave the task out of evaluation.tasks, or install the core requirements from their wheels, which hold sources",
            )
        return data

    def build(self, entries: Sequence[Entry]) -> TaskData:
        """Make the examples from these entries."""
        raise NotImplementedError

    def note(self, train: Sequence, dev: Sequence) -> str:
        """One line on what was made."""
        return f"{len(train)} training examples, {len(dev)} dev examples from modules that the pydocs corpus holds out"


def digest(*key: str) -> int:
    """A 128-bit number of the key, the same in every process."""
    return int.from_bytes(hashlib.blake2b("\0".join(key).encode(), digest_size=16).digest(), "big")


def keyed_generator(*key: str) -> np.random.Generator:
    """Draws that depend on the key alone."""
    return np.random.Generator(np.random.Philox(key=digest(*key)))


def form(text: str) -> str:
    """The letters of a sentence in lower case: sentences of the same form count as the same sentence."""
    return " ".join(_LETTERS.findall(text.lower()))


def sentences_by_split(entries: Iterable[Entry], task: str) -> tuple[list[Sentence], list[Sentence]]:
    """(train, dev): the different sentences of each split, in an order drawn for the task."""
    seen: set[str] = set()
    parts = []
    entries = list(entries)
    for split in ("train", "validation"):
        part = []
        for entry in entries:
            if entry.split != split:
                continue
            for text in entry.sentences:
                if (key := form(text)) not in seen:
                    seen.add(key)
                    part.append(Sentence(text, entry))
        parts.append(sorted(part, key=lambda sentence: digest(task, sentence.text)))
    return parts[0], parts[1]
