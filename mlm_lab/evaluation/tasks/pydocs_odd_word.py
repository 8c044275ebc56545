"""pydocs_odd_word: is this sentence as it was written, or were two of its words replaced by others of like frequency?

    the original   Return the number of bytes in the buffer.          -> original
    two replaced   Return the version of bytes in the message.        -> odd

A word is replaced by one whose count lies in the same power of two, drawn in proportion to its count: so single words are as frequent
in either class, and only their fit tells the classes apart. Each sentence is used once, as written or replaced, never both.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.evaluation.baselines import sequence_baselines
from mlm_lab.evaluation.task import SequenceExample, TaskData
from mlm_lab.evaluation.tasks.pydocs_sentences import PydocsTask, Sentence, keyed_generator, sentences_by_split

if TYPE_CHECKING:
    from mlm_lab.data.corpora.pydocs import Entry

LABELS = ("original", "odd")
REPLACED = 2
WORDS = (6, 40)
"""Words of a sentence, at least and at most: shorter ones say too little, longer ones are cut by small models."""
RAREST = 8
"""Words that occur less often in the training modules are left alone: they are names and misspellings."""

PLAIN_WORD = re.compile(r"(?<![^\s(])[a-z]{2,}(?=\)?[,;.]?(?:\s|$))")
"""A lower-case word that stands by itself: no name, no capital whose place would give a change away."""


@dataclass(frozen=True, kw_only=True)
class PydocsOddWord(PydocsTask):
    """Classify a sentence as original, or odd: with two words replaced by others of like frequency."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy",)

    def build(self, entries: Sequence[Entry]) -> TaskData:
        train, dev = sentences_by_split(entries, self.name)
        bands = FrequencyBands(train)
        train_part = list(islice(self._examples(train, bands), self.train_examples))
        dev_part = list(islice(self._examples(dev, bands), self.dev_examples))
        return TaskData(kind="classification", label_names=LABELS, train=train_part, dev=dev_part, notes=(self.note(train_part, dev_part),))

    def baselines(self, data: TaskData) -> dict[str, dict[str, float]]:
        return sequence_baselines(data, self.metrics)

    def _examples(self, sentences: Iterable[Sentence], bands: FrequencyBands) -> Iterator[SequenceExample]:
        label = 0
        for sentence in sentences:
            odd = bands.replace_words(sentence.text, self.name)
            if odd is not None:  # also asked of those that stay original, so that both classes are sentences of one kind
                yield SequenceExample((sentence.text, odd)[label], None, label)
                label = 1 - label


class FrequencyBands:
    """The plain words of the training sentences, in bands of like frequency: counts 8-15, 16-31, 32-63, ..."""

    def __init__(self, sentences: Iterable[Sentence]):
        counts = Counter(word for sentence in sentences for word in PLAIN_WORD.findall(sentence.text))
        self.band = {word: count.bit_length() for word, count in counts.items() if count >= RAREST}
        members: dict[int, list[str]] = defaultdict(list)
        for word in sorted(self.band):
            members[self.band[word]].append(word)
        self.members = {band: words for band, words in members.items() if len(words) > 1}
        self._cumulative = {band: np.cumsum([counts[word] for word in words]) for band, words in self.members.items()}

    def replace_words(self, text: str, task: str) -> str | None:
        """The sentence with two words replaced; None where its length is out of range or fewer words can be replaced."""
        if not WORDS[0] <= len(text.split()) <= WORDS[1]:
            return None
        places = [match.span() for match in PLAIN_WORD.finditer(text) if self.band.get(match.group()) in self.members]
        if len(places) < REPLACED:
            return None
        draws = keyed_generator(task, text)
        for place in sorted(draws.choice(len(places), REPLACED, replace=False), reverse=True):
            start, stop = places[place]
            text = text[:start] + self._other(text[start:stop], draws) + text[stop:]
        return text

    def _other(self, word: str, draws: np.random.Generator) -> str:
        band = self.band[word]
        while True:
            drawn = int(np.searchsorted(self._cumulative[band], draws.random() * self._cumulative[band][-1], side="right"))
            if (other := self.members[band][drawn]) != word:
                return other
