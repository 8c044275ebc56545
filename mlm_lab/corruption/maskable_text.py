"""The rows of a batch as the masking units see them: which tokens may be selected, which words they make up, in what order they come."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.corruption.frequency import race_keys

LAST_RANK = np.uint32(2**32 - 1)


@dataclass(frozen=True)
class MaskableText:
    """B rows of L tokens, W words in all. Special tokens and padding are words without candidates.

    What is drawn for a word is drawn for the place in its row where it starts, so rows are the same whatever batch they are in.
    """

    candidates: np.ndarray
    """(B, L) bool: tokens that may be selected."""
    word_flags: np.ndarray
    """(B, L) bool: the first token of a word. The first column counts as one, so that no word crosses rows."""
    draws: Draws
    epoch: np.ndarray
    """(B,) int64"""
    index: np.ndarray
    """(B,) int64"""
    weights: np.ndarray | None = None
    """(B, L) positive: how likely a token is to be drawn, against the others of its row; None: all alike."""

    @cached_property
    def words(self) -> np.ndarray:
        """(W,) int64: where each word of the batch starts, in the flattened (B * L) places."""
        flags = self.word_flags.copy()
        flags[:, 0] = True
        return np.flatnonzero(flags)

    @cached_property
    def word_sizes(self) -> np.ndarray:
        """(W,) int64: candidates in each word."""
        until = np.cumsum(self.candidates.ravel(), dtype=np.int32)[self.word_ends - 1]  # candidates up to each word's end
        return np.diff(until, prepend=np.int32(0)).astype(np.int64)

    @cached_property
    def word_ends(self) -> np.ndarray:
        """(W,) int64: the place behind each word."""
        return np.append(self.words[1:], self.candidates.size)

    @cached_property
    def word_of(self) -> np.ndarray:
        """(B * L,) int32: the number of each place's word."""
        flags = np.zeros(self.candidates.size, dtype=bool)
        flags[self.words] = True
        return np.cumsum(flags, dtype=np.int32) - np.int32(1)

    def per_token(self, per_word: np.ndarray) -> np.ndarray:
        """(W,) values -> (B, L): each token has its word's."""
        return np.repeat(per_word, self.word_ends - self.words).reshape(self.candidates.shape)

    def word_places(self, positions: np.ndarray) -> np.ndarray:
        """(B, S) places in the rows -> (B, S) the places where their words start."""
        row_starts = np.arange(len(positions))[:, None] * self.candidates.shape[1]
        return self.words[self.word_of[positions + row_starts]] - row_starts

    def token_ranks(self, stream: str) -> np.ndarray:
        """(B, L) uint32: the order of the candidates, smallest first; the rest last."""
        return np.where(self.candidates, self._ranks(stream, self.weights), LAST_RANK)

    def ordered_words(self, stream: str, at_most: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The words that hold candidates, in the order of their draws. A word weighs what its rarest token does, since it is no commoner.

        at_most: only the first so many of each row, which is less work.

        Returns: (B, N) their numbers among all W; (B, N) the places in their rows where they start; (B,) how many a row has. Beyond those
        the numbers are of words without candidates.
        """
        rows, length = self.candidates.shape
        eligible = np.zeros(self.candidates.size, dtype=bool)
        eligible[self.words] = self.word_sizes > 0
        eligible = eligible.reshape(rows, length)
        weights = None if self.weights is None else self.per_token(np.maximum.reduceat(self.weights.ravel(), self.words))
        ranks, count = self._ranks(stream, weights), eligible.sum(axis=1)
        width = int(count.max(initial=0))
        near = eligible
        if at_most is not None and at_most < width:  # 32 bits are sorted ten times as fast as the 64 below
            last = np.sort(np.where(eligible, ranks, LAST_RANK), axis=1)[:, at_most - 1]
            near, width = eligible & (ranks <= last[:, None]), at_most  # more where ranks are equal at the border
        row, place = np.divmod(np.flatnonzero(near), length)
        held = np.bincount(row, minlength=rows)
        keys = np.full((rows, int(held.max(initial=0))), 2**64 - 1, dtype=np.uint64)
        # The place is carried along, and puts the left one first where ranks are equal.
        slot = np.arange(len(row)) - np.repeat(np.cumsum(held) - held, held)
        keys[row, slot] = (ranks[near].astype(np.uint64) << np.uint64(32)) | place.astype(np.uint64)
        keys.sort(axis=1)
        keys = keys[:, :width]
        places = (keys & np.uint64(2**32 - 1)).astype(np.int64)
        places[np.arange(places.shape[1]) >= count[:, None]] = 0
        return self.word_of[places + np.arange(rows)[:, None] * length], places, count

    def _ranks(self, stream: str, weights: np.ndarray | None) -> np.ndarray:
        """(B, L) uint32"""
        ranks = self.draws.ranks(self.epoch, self.index, stream, self.candidates.shape[1])
        return ranks if weights is None else race_keys(ranks, weights)

    def select_of(self, words: np.ndarray, quotas: np.ndarray) -> np.ndarray:
        """(N,) words and (N,) tokens to select of each, from its first candidate on -> (B, L) bool."""
        starts = self.words[words]
        widths = self.word_ends[words] - starts
        ends = np.cumsum(widths)  # of each word among the places of all N
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + widths, widths)
        real = self.candidates.ravel()[places]
        counted = np.cumsum(real, dtype=np.int32)  # candidates up to and with each place
        before = np.append(np.int32(0), counted)[ends - widths]
        selected = np.zeros(self.candidates.size, dtype=bool)
        selected[places[real & (counted <= np.repeat(before + quotas, widths))]] = True
        return selected.reshape(self.candidates.shape)
