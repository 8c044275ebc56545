"""What the trained tokenizers share: a bounded sample of the corpus, its alphabet, special tokens, sentinels at the end.

Every tokenizer here is the same bit for bit whenever corpus and settings are: what a trainer leaves to the order of a hash table or to
the number of threads is put in order by its own file (wordpiece.py, unigram.py; byte-level BPE needs nothing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import Normalizer
from tokenizers.processors import TemplateProcessing

ALPHABET_COVERAGE = 0.9999
"""Share of the characters of the sample that the alphabet has to cover (SentencePiece's character_coverage; the rest becomes UNK)."""
PRINTABLE_ASCII = "".join(map(chr, range(33, 127)))
LEAST_PIECES = 256
"""Smallest vocabulary that trains, sentinels aside: ASCII letters and digits come twice in WordPiece ("a" and "##a")."""
PIECE_CHARACTERS = 4000
"""Longer paragraphs are cut, at white space, before sampling: a sample of whole novels would hold very few of them."""


@dataclass
class Sample:
    """Texts spread evenly over a stream of unknown length, in its order, in bounded memory.

    Every stride-th piece is kept, and when more than `characters` have come together every second one of them is dropped and the stride
    doubled. So the sample depends on the stream alone, and all of a small corpus is kept.
    """

    characters: int
    """Most characters that are kept."""
    texts: list[str] = field(default_factory=list)
    seen_pieces: int = 0
    _stride: int = 1
    _kept: int = 0

    @classmethod
    def of(cls, texts: Iterable[str], characters: int) -> Sample:
        sample = cls(characters)
        for text in texts:
            sample.add(text)
        return sample

    def add(self, text: str) -> None:
        for piece in _pieces(text):
            if self.seen_pieces % self._stride == 0:
                self.texts.append(piece)
                self._kept += len(piece)
                while self._kept > self.characters and len(self.texts) > 1:
                    self._halve()
            self.seen_pieces += 1

    def _halve(self) -> None:
        self.texts = self.texts[::2]
        self._kept = sum(map(len, self.texts))
        self._stride *= 2


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        end = text.rfind(" ", start + 1, start + PIECE_CHARACTERS)
        end = end if end > start else start + PIECE_CHARACTERS
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def alphabet_of(
    texts: Iterable[str], normalizer: Normalizer, size: int, stands_alone: Callable[[str], bool] = lambda character: False
) -> list[str]:
    """The characters that a vocabulary of `size` pieces should spell, in code point order: printable ASCII and the frequent others.

    The most frequent ones that cover ALPHABET_COVERAGE of the sample, as long as they and their "##" forms take at most half of what
    ASCII leaves; of two that are equally frequent the lower code point comes first. stands_alone: whether a character is a word wherever
    it stands, so that it has no "##" form (Chinese ones, punctuation).
    """
    ascii_characters = {c for c in normalizer.normalize_str(PRINTABLE_ASCII) if not c.isspace()}
    counts = np.zeros(0x110000, dtype=np.int64)
    for text in texts:
        codes = np.frombuffer(normalizer.normalize_str(text).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        found, times = np.unique(codes, return_counts=True)
        counts[found] += times
    ranked = [int(code) for code in np.flatnonzero(counts) if not chr(code).isspace()]
    ranked.sort(key=lambda code: (-counts[code], code))
    covered = np.cumsum(counts[ranked])
    enough = int(np.searchsorted(covered, ALPHABET_COVERAGE * covered[-1])) + 1 if ranked else 0
    others = [chr(code) for code in ranked[:enough] if chr(code) not in ascii_characters]
    pieces = np.cumsum([1 if stands_alone(character) else 2 for character in others])
    fitting = int(np.searchsorted(pieces, max(size - LEAST_PIECES, 0) // 2, side="right"))
    return sorted(ascii_characters.union(others[:fitting]))


def sentinel_names(number: int) -> list[str]:
    return [f"<extra_id_{k}>" for k in range(number)]


def finish(tokenizer: Tokenizer, cls: str, sep: str, special_tokens: list[str], num_sentinels: int) -> Tokenizer:
    """Add what is no part of the model: special tokens, sentinels at the end, and cls A sep [B sep] for those who load the file elsewhere.

    Ids of special tokens that the model's vocabulary holds stay as they are.
    """
    names = [*special_tokens, *sentinel_names(num_sentinels)]
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    ids = [(name, tokenizer.token_to_id(name)) for name in (cls, sep)]
    tokenizer.post_processor = TemplateProcessing(single=f"{cls} $A {sep}", pair=f"{cls} $A:0 {sep}:0 $B:1 {sep}:1", special_tokens=ids)
    return tokenizer
