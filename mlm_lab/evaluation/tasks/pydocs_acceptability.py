"""pydocs_acceptability: is this sentence as it was written, or were two adjacent words swapped?

    the original   Return the number of bytes in the buffer.          -> acceptable
    two swapped    Return the of number bytes in the buffer.          -> unacceptable

The words are the same in either class, so a bag of words has nothing but the topic to go by; only their order tells the classes apart.
Each sentence is used once, as written or swapped, never both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mlm_lab.evaluation.baselines import sequence_baselines
from mlm_lab.evaluation.task import SequenceExample, TaskData
from mlm_lab.evaluation.tasks.pydocs_odd_word import WORDS
from mlm_lab.evaluation.tasks.pydocs_sentences import PydocsTask, Sentence, keyed_generator, sentences_by_split

if TYPE_CHECKING:
    from mlm_lab.data.corpora.pydocs import Entry

LABELS = ("unacceptable", "acceptable")
"""In the order of CoLA: 1 is acceptable."""

ADJACENT = re.compile(r"(?<![^\s])(?=([a-z]+) ([a-z]+)(?:\s|$))")
"""Two lower-case words with nothing between them but a space, and no punctuation that would move with them."""


@dataclass(frozen=True, kw_only=True)
class PydocsAcceptability(PydocsTask):
    """Classify a sentence as acceptable, or unacceptable: with two adjacent words swapped."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy",)

    def build(self, entries: Sequence[Entry]) -> TaskData:
        train, dev = sentences_by_split(entries, self.name)
        train_part = list(islice(self._examples(train), self.train_examples))
        dev_part = list(islice(self._examples(dev), self.dev_examples))
        return TaskData(kind="classification", label_names=LABELS, train=train_part, dev=dev_part, notes=(self.note(train_part, dev_part),))

    def baselines(self, data: TaskData) -> dict[str, dict[str, float]]:
        return sequence_baselines(data, self.metrics)

    def _examples(self, sentences: Iterable[Sentence]) -> Iterator[SequenceExample]:
        label = 1
        for sentence in sentences:
            swapped = swap_words(sentence.text, self.name)
            if swapped is not None:  # also asked of those that stay as they are, so that both classes are sentences of one kind
                yield SequenceExample((swapped, sentence.text)[label], None, label)
                label = 1 - label


def swap_words(text: str, task: str) -> str | None:
    """The sentence with two adjacent words swapped; None where its length is out of range or no swap would change it."""
    if not WORDS[0] <= len(text.split()) <= WORDS[1]:
        return None
    pairs = [match for match in ADJACENT.finditer(text) if match.group(1) != match.group(2)]
    if not pairs:
        return None
    match = pairs[keyed_generator(task, text).integers(len(pairs))]
    return f"{text[: match.start()]}{match.group(2)} {match.group(1)}{text[match.end(2) :]}"
