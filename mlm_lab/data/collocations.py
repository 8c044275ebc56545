"""Collocations of a token store: which n-grams of words belong together, and the text cut into them (PMI-masking, Levine et al. 2021).

    words of the training text -> n-grams of 2 to 5 words that occur 10 times -> PMI of each -> the upper half of each length
        -> both splits cut into collocations and single words: True at the first token of each

The PMI of an n-gram (section 3 of the paper) is the least, over all ways to cut it in parts, of log p(n-gram) - sum of log p(part): so a
longer n-gram counts only if it is more than a strong shorter one with something beside it. The cut is greedy: longest first, from left
to right within a length, never across sentences. It is made once, with the store, and masking reads it like the word borders.

Shapes: T tokens, W words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlm_lab import console
from mlm_lab.data.build_once import build_once
from mlm_lab.data.token_store import SPLITS, TokenStore, damaged

CODE_VERSION = 1
"""To be raised when the same store comes to give other collocations."""
LONGEST = 5
"""Words of an n-gram (Levine et al. 2021: 2 to 5)."""
FEWEST_OCCURRENCES = 10
"""Rarer n-grams are left out (Levine et al. 2021: 10)."""
KEPT_SHARE = 0.5
"""Of the n-grams of each length, those with the highest PMI (the paper keeps 800,000 of a corpus of 16 GB)."""
MOST = 800_000
"""Collocations of each length at most."""
MINED_TOKENS = 1 << 25
"""A longer text is mined from so many of its tokens, in PIECES evenly spaced runs of sentences: memory stays below 2 GB."""
PIECES = 64
BLOCK_TOKENS = 1 << 22
"""Tokens that are cut at a time."""


class Text(NamedTuple):
    """A run of whole sentences."""

    tokens: np.ndarray  # (T,)
    word_starts: np.ndarray  # (T,) bool
    sentence_starts: np.ndarray  # (S + 1,) int64


class Words(NamedTuple):
    """The words of a text."""

    first: np.ndarray  # (W,) int64: the place of the first token
    hashes: np.ndarray  # (W,) uint64, of the token ids
    left: np.ndarray  # (W,) int64: words up to the end of the sentence, this one counted


@dataclass(frozen=True)
class Collocations:
    """Frequent n-grams as a trie: an n-gram's key is its prefix's number and its last word's."""

    words: np.ndarray
    """Sorted uint64 hashes of the words; a word's number is its place here."""
    keys: tuple[np.ndarray, ...]
    """For n = 2 .. LONGEST the sorted int64 keys of the frequent n-grams; an n-gram's number is its place here."""
    kept: tuple[np.ndarray, ...]
    """For n = 2 .. LONGEST, bool: which of them are collocations."""

    def __len__(self) -> int:
        return sum(int(kept.sum()) for kept in self.kept)

    def starts(self, text: Text) -> np.ndarray:
        """(T,) bool: True at the first token of each collocation and of each word outside of them."""
        words = find_words(text)
        numbers = _look_up(self.words, words.hashes)
        prefix, begins = numbers, []
        for n, (keys, kept) in enumerate(zip(self.keys, self.kept, strict=True), start=2):
            found = np.full(len(numbers), -1)
            places = _n_gram_places(prefix, numbers, words.left, n)
            found[places] = _look_up(keys, prefix[places] * len(self.words) + numbers[places + n - 1])
            begins.append(np.flatnonzero((found >= 0) & np.append(kept, False)[found]))
            prefix = found
        starts = np.asarray(text.word_starts).copy()
        starts[words.first[_inside(begins, len(numbers))]] = False
        return starts


def collocation_starts(store: TokenStore) -> np.ndarray:
    """(T,) bool, of the store's split: mined and cut the first time, and kept beside the store (in memory, where the store is).

    Raises:
        UserError: the place beside the store cannot be written to.
    """
    if store.path is None:
        return mine(_sample(store)).starts(_text(store, 0, store.num_sentences))
    folder = store.path.with_name(f"{store.path.name}-collocations-{CODE_VERSION}")
    with build_once(folder, "list of collocations") as unfinished:
        if unfinished is not None:
            _write(unfinished, {split: TokenStore.open(store.path, split) for split in SPLITS})
    try:
        starts = np.load(folder / f"{store.split}.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise damaged(folder, f"{store.split}.npy: {error}") from None
    if starts.shape != store.tokens.shape:
        raise damaged(folder, f"{store.split}.npy is of {len(starts)} tokens, the store of {len(store.tokens)}")
    return starts


def _write(folder: Path, stores: dict[str, TokenStore]) -> None:
    found = mine(_sample(stores["train"]))
    words = units = 0
    for split, store in stores.items():
        starts = np.lib.format.open_memmap(folder / f"{split}.npy", "w+", np.bool_, store.tokens.shape) if len(store.tokens) else None
        if starts is None:
            np.save(folder / f"{split}.npy", np.zeros(0, dtype=bool))
            continue
        for first, stop in _blocks(store):
            place = slice(store.sentence_starts[first], store.sentence_starts[stop])
            starts[place] = found.starts(_text(store, first, stop))
            words, units = words + int(store.word_starts[place].sum()), units + int(starts[place].sum())
        starts.flush()
    console.say(f"Collocations: {len(found):,} n-grams of 2 to {LONGEST} words; {words:,} words make {units:,} units.")


def mine(text: Text) -> Collocations:
    """Find the collocations of a text: a function of the text alone."""
    words = find_words(text)
    hashes, numbers, counts = np.unique(words.hashes, return_inverse=True, return_counts=True)
    total = len(numbers)
    # By length: each word's n-gram as a number (-1: rare or across sentences), log p of each number, and the best log p of its cuts,
    # the uncut n-gram among them.
    number_at, log_p = [np.where(counts[numbers] >= FEWEST_OCCURRENCES, numbers, -1)], [np.log(counts / max(total, 1))]
    best, keys, kept = [log_p[0]], [], []
    for n in range(2, LONGEST + 1):
        places = _n_gram_places(number_at[-1], number_at[0], words.left, n)
        places = places[number_at[-1][places + 1] >= 0]  # a frequent n-gram has a frequent suffix
        key = number_at[-1][places] * len(hashes) + number_at[0][places + n - 1]
        distinct, first, inverse, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        frequent = counts >= FEWEST_OCCURRENCES
        renumbered = np.where(frequent, np.cumsum(frequent) - 1, -1)
        number = np.full(total, -1)
        number[places] = renumbered[inverse]
        whole = np.log(counts[frequent] / max(int((words.left >= n).sum()), 1))
        example = places[first[frequent]]
        cut = np.full(len(whole), -np.inf)
        for k in range(1, n):  # the first part has k words, the rest is cut in the best way
            cut = np.maximum(cut, log_p[k - 1][number_at[k - 1][example]] + best[n - k - 1][number_at[n - k - 1][example + k]])
        keys.append(distinct[frequent])
        kept.append(_highest(whole - cut))
        number_at.append(number)
        log_p.append(whole)
        best.append(np.maximum(whole, cut))
    return Collocations(hashes, tuple(keys), tuple(kept))


def _highest(pmi: np.ndarray) -> np.ndarray:
    """(N,) bool: the KEPT_SHARE with the highest PMI, above 0, MOST at most; the first where equal."""
    kept = np.zeros(len(pmi), dtype=bool)
    kept[np.argsort(-pmi, kind="stable")[: min(ceil(KEPT_SHARE * len(pmi)), MOST)]] = True
    return kept & (pmi > 0)


def find_words(text: Text) -> Words:
    """The words of a text, each known by a hash of its token ids (64 bits: in a million words, two alike have odds of 1 to 40 million)."""
    first = np.flatnonzero(text.word_starts)
    if len(first) == 0:
        nothing = np.zeros(0, dtype=np.int64)
        return Words(nothing, nothing.astype(np.uint64), nothing)
    place = np.arange(len(text.tokens), dtype=np.uint64) - np.repeat(first, np.diff(first, append=len(text.tokens))).astype(np.uint64)
    mixed = _mix(np.asarray(text.tokens).astype(np.uint64) + (place << np.uint64(32)))
    hashes = np.add.reduceat(mixed, first)
    ends = np.searchsorted(first, text.sentence_starts[1:])  # word after the last of each sentence
    left = np.repeat(ends, np.diff(ends, prepend=0)) - np.arange(len(first))
    return Words(first, hashes, left)


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _n_gram_places(prefix: np.ndarray, numbers: np.ndarray, left: np.ndarray, n: int) -> np.ndarray:
    """Words at which n words of one sentence start whose first n - 1 are a frequent n-gram and whose last is a known word."""
    places = np.flatnonzero((prefix >= 0) & (left >= n))
    return places[numbers[places + n - 1] >= 0]


def _look_up(table: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Place of each value in a sorted table, -1 where it is not in it."""
    if len(table) == 0:
        return np.full(len(values), -1)
    places = np.minimum(np.searchsorted(table, values), len(table) - 1)
    return np.where(table[places] == values, places, -1)


def _inside(begins: list[np.ndarray], words: int) -> np.ndarray:
    """(words,) bool: words that a collocation holds, but for its first. begins: for n = 2 .. LONGEST where one may start."""
    taken, inside = bytearray(words), np.zeros(words, dtype=bool)
    for n in range(LONGEST, 1, -1):
        free, full, chosen = bytes(n), b"\1" * n, []
        for place in begins[n - 2].tolist():
            if taken[place : place + n] == free:
                taken[place : place + n] = full
                chosen.append(place)
        for later in range(1, n):
            inside[np.asarray(chosen, dtype=np.int64) + later] = True
    return inside


def _text(store: TokenStore, first: int, stop: int) -> Text:
    """Sentences first .. stop - 1 of a store."""
    borders = np.asarray(store.sentence_starts[first : stop + 1])
    place = slice(borders[0], borders[-1])
    return Text(np.asarray(store.tokens[place]), np.asarray(store.word_starts[place]), borders - borders[0])


def _blocks(store: TokenStore) -> Iterator[tuple[int, int]]:
    """Runs of sentences (first, stop) of about BLOCK_TOKENS that make up the store."""
    edges = np.searchsorted(store.sentence_starts, np.arange(0, len(store.tokens), BLOCK_TOKENS))
    edges = np.append(edges, store.num_sentences)
    for first, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if stop > first:
            yield first, stop


def _sample(store: TokenStore) -> Text:
    """The text that is mined: all of it, or evenly spaced runs of sentences."""
    total = len(store.tokens)
    if total <= MINED_TOKENS:
        return _text(store, 0, store.num_sentences)
    offsets = np.arange(PIECES) * total // PIECES
    firsts = np.searchsorted(store.sentence_starts, offsets).tolist()
    stops = np.searchsorted(store.sentence_starts, offsets + MINED_TOKENS // PIECES).tolist()
    pieces = [_text(store, first, stop) for first, stop in zip(firsts, stops, strict=True) if stop > first]
    before = np.cumsum([0, *(len(piece.tokens) for piece in pieces)])
    borders = [piece.sentence_starts[:-1] + offset for piece, offset in zip(pieces, before, strict=False)]
    return Text(
        np.concatenate([piece.tokens for piece in pieces]),
        np.concatenate([piece.word_starts for piece in pieces]),
        np.append(np.concatenate(borders), before[-1]),
    )
