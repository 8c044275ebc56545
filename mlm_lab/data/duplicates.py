"""Repeated text found in one pass, in memory of a few numbers a document: the first of its kind stays, whatever the machine.

Near-duplicate documents by MinHash with banding (Broder 1997; Leskovec et al., Mining of Massive Datasets, 3.4): shingles of three words,
eight minima in two bands of four, so documents whose shingles overlap by a share J are found with probability 1 - (1 - J^4)^2: .88 at
J = .9, .65 at .8, .12 at .5. Documents under twelve words are left to the exact rule for sentences.
Own code: no core requirement has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

SHINGLE_WORDS = 3
MINIMA = 8
BANDS = 2
SHORTEST_DOCUMENT = 12
"""Words; below, a template such as "Return the name." would count as a copy of itself."""


class Duplicates:
    """What was seen so far, and how much was turned away."""

    def __init__(self) -> None:
        self.documents = self.sentences = 0
        self._bands: set[tuple[int, ...]] = set()
        self._sentences: set[str] = set()

    def is_document_seen(self, text: str) -> bool:
        """Whether a near duplicate came before; if not, remember this one."""
        bands = signature(text)
        if seen := any(band in self._bands for band in bands):
            self.documents += 1
        self._bands.update(bands)
        return seen

    def new_sentences(self, sentences: Iterable[str]) -> list[str]:
        """Those that did not come before, letter for letter."""
        fresh = []
        for sentence in sentences:
            if sentence in self._sentences:
                self.sentences += 1
            else:
                self._sentences.add(sentence)
                fresh.append(sentence)
        return fresh


def signature(text: str) -> list[tuple[int, ...]]:
    """The document's bands of minima; documents that share a band are near duplicates. Empty for short documents."""
    words = text.lower().split()
    if len(words) < SHORTEST_DOCUMENT:
        return []
    minima = [1 << 32] * MINIMA
    for start in range(len(words) - SHINGLE_WORDS + 1):
        # One hash a shingle: its low bits say which minimum it competes for (one-permutation hashing, Li et al. 2012).
        code = crc32(" ".join(words[start : start + SHINGLE_WORDS]).encode())
        if code < minima[code % MINIMA]:
            minima[code % MINIMA] = code
    per_band = MINIMA // BANDS
    return [(band, *minima[band * per_band : (band + 1) * per_band]) for band in range(BANDS)]
