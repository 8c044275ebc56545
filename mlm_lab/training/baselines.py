"""What can be said of held-out targets without a model: by how common a token is (unigram), and by its two neighbours (interpolated
bigrams), from counts of the training text. The first is where small models sit for a while, the second what lies ahead of them.

    held-out batches -> targets with what the input shows beside them -> counts of those pairs in the training text -> log-probabilities

Shapes: N targets, T tokens of the training text, V vocabulary rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlm_lab.types import IGNORE_INDEX, Batch, Vocabulary

if TYPE_CHECKING:
    from mlm_lab.data.token_store import TokenStore

NOTHING = -1
"""In the place of an id: the input does not say."""
PRIOR_COUNT = 20.0
"""How many occurrences of a neighbour the unigram counts for (of 5 to 1500 the best on pydocs, by little)."""
BLOCK_TOKENS = 1 << 20
"""Tokens that are counted at a time."""
MOST_BLOCKS = 32
"""A longer text's neighbours are counted on so many evenly spaced blocks. (The unigram counts all of it: some nanoseconds a token.)"""


class Targets(NamedTuple):
    """(N,) int64 each: ids, and what the input shows beside them and in their place, NOTHING where it hides it."""

    ids: np.ndarray
    left: np.ndarray
    right: np.ndarray
    own: np.ndarray

    def where(self, chosen: np.ndarray) -> Targets:
        """chosen: (N,) bool."""
        return Targets(*(values[chosen] for values in self))


def find_targets(batch: Batch, vocabulary: Vocabulary) -> Targets:
    """Targets of a batch, in the order of its labels.

    With label_positions (masked tokens) both neighbours are known, unless they are hidden too; else a target follows the token that the
    causal model, or the decoder, has read last.
    """
    used = batch["labels"] != IGNORE_INDEX
    read = batch.get("decoder_input_ids", batch["input_ids"])
    seen = np.where((read == vocabulary.mask_id) | (read == vocabulary.pad_id), NOTHING, read)
    if "label_positions" not in batch:
        nothing = np.full(int(used.sum()), NOTHING)
        return Targets(batch["labels"][used], seen[used], nothing, nothing)
    around = np.pad(seen, ((0, 0), (1, 1)), constant_values=NOTHING)
    left, own, right = (np.take_along_axis(around, batch["label_positions"] + offset, axis=1)[used] for offset in (0, 1, 2))
    return Targets(batch["labels"][used], left, right, own)


class Frequencies:
    """Counts of the training text behind the probabilities of targets."""

    def __init__(self, train: TokenStore, targets: Targets):
        """Count what the targets ask for: one pass over the text."""
        self.vocabulary, size = train.vocabulary, train.vocabulary.padded_size
        possible = np.append(self.vocabulary.ordinary_ids, self.vocabulary.unk_id)  # UNK may be a target: it stands for real text
        smoothed = np.zeros(size)
        smoothed[possible] = train.token_counts[possible] + 1.0
        self.unigram = smoothed / smoothed.sum()  # (V,)
        asked = [(targets.left, ids, targets.right) for ids in (targets.ids, targets.own)]
        pairs = [self._codes(*pair) for left, ids, right in asked for pair in ((left, ids), (ids, right))]
        self._wanted = np.unique(np.concatenate(pairs))
        self._pairs = np.zeros(len(self._wanted), dtype=np.int64)
        self._first, self._second = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        for first, second in neighbouring_tokens(train):
            # Text only: that a sentence may end behind a token does not make what follows it less likely.
            self._first += np.bincount(first[second != self.vocabulary.sep_id], minlength=size)
            self._second += np.bincount(second[first != self.vocabulary.cls_id], minlength=size)
            codes = self._codes(first, second)
            places = np.minimum(np.searchsorted(self._wanted, codes), len(self._wanted) - 1)
            self._pairs += np.bincount(places[self._wanted[places] == codes], minlength=len(self._wanted))

    def _codes(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """(N,) int64: a number for each pair of ids; those with NOTHING are no pair of the text."""
        return np.where((first < 0) | (second < 0), NOTHING, first.astype(np.int64) * self.vocabulary.padded_size + second)

    def beside(self, ids: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """(N,) probability of the ids by their neighbours: p(x | l) = (count(l, x) + PRIOR_COUNT p(x)) / (count(l) + PRIOR_COUNT), the same
        from the right; their mean where both are seen, the unigram where none is."""
        prior = self.unigram[ids]
        sides = []
        for neighbour, pairs, counts in ((left, (left, ids), self._first), (right, (ids, right), self._second)):
            codes = self._codes(*pairs)
            places = np.searchsorted(self._wanted, codes)
            together, alone = np.where(codes < 0, 0, self._pairs[places]), np.where(neighbour < 0, 0, counts[neighbour])
            sides.append((together + PRIOR_COUNT * prior) / (alone + PRIOR_COUNT))
        from_left, from_right = sides
        return np.where(right < 0, from_left, np.where(left < 0, from_right, (from_left + from_right) / 2))


def neighbouring_tokens(train: TokenStore) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of tokens, (N,) int64 each, that stand beside each other in a document, a block at a time; and, as at the ends of rows, [CLS]
    before and [SEP] behind a sentence."""
    tokens, total = train.tokens, len(train.tokens)
    starts = np.arange(0, total, BLOCK_TOKENS)
    if len(starts) > MOST_BLOCKS:
        starts = np.arange(MOST_BLOCKS) * total // MOST_BLOCKS
    for start in starts.tolist():
        stop = min(start + BLOCK_TOKENS, total)
        block = np.asarray(tokens[start : stop + 1]).astype(np.int64)  # with the first token of what follows
        within = np.ones(len(block) - 1, dtype=bool)
        within[_inside(train.document_offsets, start + 1, start + len(block)) - start - 1] = False
        yield block[:-1][within], block[1:][within]
        begins = block[_inside(train.sentence_starts, start, stop) - start]
        yield np.full(len(begins), train.vocabulary.cls_id), begins
        ends = block[_inside(train.sentence_starts, start + 1, stop + 1) - start - 1]
        yield ends, np.full(len(ends), train.vocabulary.sep_id)


def _inside(offsets: np.ndarray, start: int, stop: int) -> np.ndarray:
    """The sorted offsets from start to before stop."""
    first, last = np.searchsorted(offsets, [start, stop])
    return np.asarray(offsets[first:last])
