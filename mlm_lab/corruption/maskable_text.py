"""The rows of a batch as the masking units see them: which tokens may be selected, which words they make up, in what order they come."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlm_lab.corruption.draws import Draws

LAST_RANK = np.uint32(2**32 - 1)


@dataclass(frozen=True)
class MaskableText:
    """B rows of L tokens. Words are numbered 0, 1, ... in each row; special tokens and padding are words without candidates.

    What is drawn for a word is drawn for the place where it starts, so rows are the same whatever batch they are in.
    """

    candidates: np.ndarray
    """(B, L) bool: tokens that may be selected."""
    word_flags: np.ndarray
    """(B, L) bool: the first token of a word. True in the first column."""
    draws: Draws
    epoch: np.ndarray
    """(B,) int64"""
    index: np.ndarray
    """(B,) int64"""

    @cached_property
    def word_starts(self) -> np.ndarray:
        """(B, L) int32: the place where the word of each token starts."""
        return np.maximum.accumulate(self.word_flags * np.arange(self.word_flags.shape[1], dtype=np.int32), axis=1)

    @cached_property
    def word_numbers(self) -> np.ndarray:
        """(B, L) int64: the number of the word that each token is part of."""
        return np.cumsum(self.word_flags, axis=1) - 1

    @cached_property
    def word_sizes(self) -> np.ndarray:
        """(B, L) int64: candidates in word w of each row, 0 past its last word."""
        words = (self.word_numbers + self._row_offsets)[self.candidates]
        return np.bincount(words, minlength=self.candidates.size).reshape(self.candidates.shape)

    @property
    def _row_offsets(self) -> np.ndarray:
        """(B, 1): where each row starts in a flattened (B, L) array."""
        rows, length = self.candidates.shape
        return np.arange(rows)[:, None] * length

    def token_ranks(self, stream: str) -> np.ndarray:
        """(B, L) uint32: the order of the candidates, smallest first; the rest last."""
        return np.where(self.candidates, self.draws.ranks(self.epoch, self.index, stream, self.candidates.shape[1]), LAST_RANK)

    def ordered_words(self, stream: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The words that hold candidates, in the order of their draws: (B, L) numbers, (B, L) the places where they start; (B,) how many.

        Past a row's count stands what has no meaning.
        """
        flat_sizes = self.word_sizes.ravel()
        eligible = self.word_flags & (flat_sizes[self.word_numbers + self._row_offsets] > 0)
        ranks = self.draws.ranks(self.epoch, self.index, stream, self.candidates.shape[1]).astype(np.uint64)
        ranks <<= np.uint64(32)
        ranks |= np.arange(ranks.shape[1], dtype=np.uint64)  # the place: carried along, and the left one first where ranks are equal
        ranks[~eligible] = np.uint64(2**64 - 1) << np.uint64(32)
        ranks.sort(axis=1)
        places = (ranks & np.uint64(2**32 - 1)).astype(np.int64)
        return self.word_numbers.ravel()[places + self._row_offsets], places, eligible.sum(axis=1)

    def in_order(self, by_word: np.ndarray, order: np.ndarray) -> np.ndarray:
        """(B, L) values by word number -> the same in the order of `ordered_words`."""
        return by_word.ravel()[order + self._row_offsets]

    def select_quotas(self, quotas: np.ndarray) -> np.ndarray:
        """(B, L) tokens to select of each word, from its first candidate on -> (B, L) bool."""
        words = self.word_numbers + self._row_offsets
        counted = np.cumsum(self.candidates, axis=1)  # candidates up to and with each place
        before = np.cumsum(self.word_sizes, axis=1) - self.word_sizes  # candidates before each word
        return self.candidates & (counted <= (before + quotas).ravel()[words])
