"""Sentence pairs: rows of a batch as two segments of whole sentences, [CLS] A [SEP] B [SEP], for next sentence and sentence order.

    document    s0 s1 s2 s3 | s4 s5 ...    sentences are taken until a target length is reached: a chunk
    chunk       [s0 s1 | s2 s3]            and cut in two at one of its sentence borders: first and second segment

    next        A = s0 s1   B = s2 s3      the true continuation, or
                A = s0 s1   B = t5 t6      the continuation of another document's segment; s2 s3 is put back: the next chunk starts there
    order       A = s0 s1   B = s2 s3      as written, or
                A = s2 s3   B = s0 s1      swapped

(BERT: Devlin et al. 2019, section 3.1, Task 2 and appendix A.2; ALBERT: Lan et al. 2020, section 3.1.) What must not tell the label:

- A random B is the true continuation of another pair, and one that is about as long as the one it replaces: so neither lengths nor the
  place in a document differ between the two labels. BERT's script starts it anywhere and fills the row.
- A chunk of one sentence is no pair and is left out; BERT's script pairs it with a random B, so that more than half are random.
- The sentence that reaches the target is longer than others, and it is the last. For sentence order half of the documents are therefore
  cut from their end on, which makes the lengths of both segments alike.
- Truncation comes after the swap and looks at the places A and B, never at which of the two came first.

Shapes: T tokens, S sentences, N documents of the store; P pairs of the plan; B rows of L positions in a batch. Segments are ranges of
the store's tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.packing import distinct
from mlm_lab.data.token_store import TokenStore

PAIR_SPECIALS = 3
"""Places that a pair takes beside its tokens: [CLS] and two [SEP]."""
NEXT, RANDOM = "true continuation", "random"
IN_ORDER, SWAPPED = "in order", "swapped"
_BLOCK = 2**20
"""Sentences that are cut into chunks at a time."""
_NEIGHBOURS = 32
"""Least number of continuations on either side, by length, that a random one is drawn from."""
_TRIES = 8
"""Draws of a random continuation before the nearest one of another document is taken."""


@dataclass(frozen=True)
class Histogram:
    """How many of something have 1, 2, 3-4, 5-8, ... of something else."""

    counts: tuple[int, ...]

    @classmethod
    def of(cls, sizes: np.ndarray) -> Histogram:
        """(n,) sizes, each at least 1."""
        return cls(tuple(np.bincount(np.ceil(np.log2(sizes)).astype(np.int64), minlength=1).tolist()))

    def __str__(self) -> str:
        total = max(sum(self.counts), 1)
        bounds = [(2**power // 2 + 1, 2**power) for power in range(len(self.counts))]
        names = [str(high) if low >= high else f"{low}-{high}" for low, high in bounds]
        return "   ".join(f"{name}: {count / total:.1%}" for name, count in zip(names, self.counts, strict=True) if count)


@dataclass(frozen=True)
class SentencePairs:
    """The plan of one epoch; another epoch has other chunks, other pairs and another number of them."""

    draws: Draws
    max_length: int
    starts: np.ndarray
    """(P, 2) int64 offsets into the store's tokens: of A, of B."""
    stops: np.ndarray
    """(P, 2) int64"""
    labels: np.ndarray
    """(P,) int64: 0 as in the text; 1 random, or swapped."""
    label_names: tuple[str, str]
    truncated: int
    """Pairs that were longer than a row."""
    document_sizes: Histogram
    """Documents by their sentences."""
    sentence_sizes: Histogram
    """Sentences by their tokens."""
    redrawn: bool = True

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def corpus_tokens(self) -> int:
        """Tokens of the epoch's rows, special tokens not counted."""
        return int((self.stops - self.starts).sum())

    def describe(self) -> list[str]:
        """Lines for people: the label balance, what the pairs are like, what the corpus is like."""
        share = self.labels.mean()
        median = np.median(self.stops - self.starts, axis=0)
        filled = (self.corpus_tokens + PAIR_SPECIALS * len(self)) / (len(self) * self.max_length)
        return [
            f"sentence pairs {len(self):,}: {1 - share:.1%} {self.label_names[0]}, {share:.1%} {self.label_names[1]}",
            f"tokens of a segment, median: A {median[0]:.0f}, B {median[1]:.0f}; rows {filled:.0%} full; "
            f"{self.truncated / len(self):.1%} of the pairs truncated",
            f"sentences of a document   {self.document_sizes}",
            f"tokens of a sentence   {self.sentence_sizes}",
        ]


class Chunks(NamedTuple):
    """Runs of whole sentences of one document, each cut in two at a sentence border."""

    starts: np.ndarray  # (P,) int64 offsets into the store's tokens
    middles: np.ndarray  # (P,) int64
    stops: np.ndarray  # (P,) int64
    documents: np.ndarray  # (P,) int64
    put_back: np.ndarray  # (P,) bool: the second segment is in the following chunk again


class Sentences(NamedTuple):
    """The sentences of documents, in the order in which chunks are cut. One that is `mirrored` is walked from its end: what is at place x
    of the tokens then counts as at low + high - x, if the document is [low, high)."""

    numbers: np.ndarray  # (S,) int64: key the draws
    starts: np.ndarray  # (S,) int64, increasing
    stops: np.ndarray  # (S,) int64
    ends: np.ndarray  # (S,) int64: sentence after the document's last
    documents: np.ndarray  # (S,) int64
    mirrors: np.ndarray  # (S,) int64: low + high where mirrored, else 0


class PairRows(NamedTuple):
    """Rows of pairs before corruption."""

    input_ids: np.ndarray  # (B, L) int64
    attention_mask: np.ndarray  # (B, L) int64; 0 = padding
    position_ids: np.ndarray  # (B, L) int64
    token_type_ids: np.ndarray  # (B, L) int64; 1 = B and its [SEP]
    source: np.ndarray  # (B, L) int64 offset into the store's tokens; of no meaning where special
    special: np.ndarray  # (B, L) bool


def pair_next(store: TokenStore, max_length: int, short_seq_prob: float, draws: Draws) -> SentencePairs:
    """An epoch of next sentence prediction: half of the pairs, and never more, have a random B of another document.

    The store has two documents of two sentences or more (`count_sentences`); max_length is at least PAIR_SPECIALS + 2.
    """
    chunks = cut_chunks(store, max_length - PAIR_SPECIALS, short_seq_prob, draws, put_back_share=0.5, mirrored_share=0.0)
    is_random = chunks.put_back.copy()
    surplus = is_random.sum() - len(is_random) // 2
    if surplus > 0:
        chosen = np.flatnonzero(is_random)
        is_random[chosen[draws.permutation("pair surplus", len(chosen))[:surplus]]] = False
    partner = np.arange(len(is_random))
    partner[is_random] = _exchange(chunks, is_random, draws)
    starts = np.stack([chunks.starts, chunks.middles[partner]], axis=1)
    stops = np.stack([chunks.middles, chunks.stops[partner]], axis=1)
    return _plan(store, max_length, starts, stops, is_random, (NEXT, RANDOM), draws)


def pair_order(store: TokenStore, max_length: int, short_seq_prob: float, draws: Draws) -> SentencePairs:
    """An epoch of sentence order: the two segments of each chunk, swapped with probability 0.5.

    The store has a document of two sentences or more; max_length is at least PAIR_SPECIALS + 2.
    """
    chunks = cut_chunks(store, max_length - PAIR_SPECIALS, short_seq_prob, draws, put_back_share=0.0, mirrored_share=0.5)
    swapped = _uniform(draws, np.arange(len(chunks.starts)), "pair order", 1)[:, 0] < 0.5
    starts = np.stack([chunks.starts, chunks.middles], axis=1)
    stops = np.stack([chunks.middles, chunks.stops], axis=1)
    starts[swapped], stops[swapped] = starts[swapped, ::-1], stops[swapped, ::-1]
    return _plan(store, max_length, starts, stops, swapped, (IN_ORDER, SWAPPED), draws)


def count_sentences(store: TokenStore) -> np.ndarray:
    """(N,) int64: sentences of each document, empty sentences and documents left out. Those of two or more make pairs."""
    return np.diff(np.searchsorted(distinct(store.sentence_starts), distinct(store.document_offsets)))


def cut_chunks(
    store: TokenStore, room: int, short_seq_prob: float, draws: Draws, *, put_back_share: float, mirrored_share: float
) -> Chunks:
    """Cut the documents into chunks, from their start on or, mirrored, from their end on.

    A chunk is the fewest sentences that reach the target (at least two), or what is left of the document. The target is room tokens, and
    with probability short_seq_prob uniform from 2 to room; BERT's script draws it once for a document, here each chunk has its own. The
    cut is uniform over the chunk's sentence borders. A last sentence that is left alone is in no chunk.
    """
    borders, offsets = distinct(store.sentence_starts), distinct(store.document_offsets)
    first = np.searchsorted(borders, offsets)  # (N + 1,) the documents' first sentences
    edges = np.searchsorted(first, np.arange(0, len(borders) - 1, _BLOCK))
    edges = distinct(np.append(edges, len(offsets) - 1))
    parts = []
    for low, high in pairwise(edges):
        documents = low + np.flatnonzero(np.diff(first[low : high + 1]) >= 2)
        if len(documents):
            sentences = _sentences(borders, offsets, first, documents, mirrored_share, draws)
            parts.append(_cut_block(sentences, room, short_seq_prob, put_back_share, draws))
    return Chunks(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _sentences(
    borders: np.ndarray, offsets: np.ndarray, first: np.ndarray, documents: np.ndarray, mirrored_share: float, draws: Draws
) -> Sentences:
    counts = first[documents + 1] - first[documents]
    ends = np.repeat(np.cumsum(counts), counts)
    number = np.arange(ends[-1])
    in_store = number + np.repeat(first[documents + 1], counts) - ends
    is_mirrored = np.repeat(_uniform(draws, documents, "pair direction", 1)[:, 0] < mirrored_share, counts)
    mirrors = np.where(is_mirrored, np.repeat(offsets[documents] + offsets[documents + 1], counts), 0)
    opposite = np.where(is_mirrored, np.repeat(first[documents] + first[documents + 1], counts) - 1 - in_store, in_store)
    starts, stops = borders[opposite], borders[opposite + 1]
    starts, stops = np.where(is_mirrored, mirrors - stops, starts), np.where(is_mirrored, mirrors - starts, stops)
    return Sentences(in_store, starts, stops, ends, np.repeat(documents, counts), mirrors)


def _cut_block(sentences: Sentences, room: int, short_seq_prob: float, put_back_share: float, draws: Draws) -> Chunks:
    """What a chunk would be is computed for every sentence that it could start with; the chunks are then the chain 0 -> next[0] -> ...

    Each start has its own draws, so those of the chain are independent of each other.
    """
    start, ends = np.arange(len(sentences.starts)), sentences.ends
    short, length, cut, coin = _uniform(draws, sentences.numbers, "pair chunk", 4).T
    target = np.where(short < short_seq_prob, 2 + (length * (room - 1)).astype(np.int64), room)
    reached = np.searchsorted(sentences.stops, sentences.starts + target, side="left") + 1
    stop = np.minimum(np.maximum(reached, start + 2), ends)
    middle = start + 1 + (cut * (stop - start - 1)).astype(np.int64)
    put_back = coin < put_back_share
    following = np.where(put_back, middle, stop)
    following = np.where(ends - following < 2, ends, following)
    chain, steps, sentence = [], following.tolist(), 0
    while sentence < len(steps):
        chain.append(sentence)
        sentence = steps[sentence]
    begin = np.asarray(chain)
    middle, stop = middle[begin], stop[begin]
    places = np.stack([sentences.starts[begin], sentences.starts[middle], sentences.stops[stop - 1]])
    mirrors = sentences.mirrors[begin]
    places = np.where(mirrors > 0, mirrors - places[::-1], places)
    return Chunks(*places, sentences.documents[begin], put_back[begin])


def _exchange(chunks: Chunks, is_random: np.ndarray, draws: Draws) -> np.ndarray:
    """For each random pair, the number of a pair of another document whose second segment it gets.

    All second segments stand in the order of their lengths, equal ones in random order. A place is drawn among those of the same length,
    or among the nearest lengths where there are few.
    """
    lengths, total = chunks.stops - chunks.middles, len(chunks.starts)
    order = np.argsort(lengths[shuffled := draws.permutation("pair exchange", total)], kind="stable")
    order = shuffled[order]
    ordered, documents = lengths[order], chunks.documents[order]
    place = np.empty(total, dtype=np.int64)
    place[order] = np.arange(total)
    place = place[is_random]
    low = np.clip(np.minimum(np.searchsorted(ordered, ordered[place], side="left"), place - _NEIGHBOURS), 0, None)
    high = np.clip(np.maximum(np.searchsorted(ordered, ordered[place], side="right"), place + _NEIGHBOURS + 1), None, total)
    found, open_ = place.copy(), np.arange(len(place))
    for attempt in range(_TRIES):
        drawn = _uniform(draws, order[place[open_]], f"pair exchange {attempt}", 1)[:, 0]
        found[open_] = low[open_] + (drawn * (high - low)[open_]).astype(np.int64)
        open_ = open_[documents[found[open_]] == documents[place[open_]]]
    found[open_] = _nearest_of_another_document(ordered, documents, place[open_])
    return order[found]


def _nearest_of_another_document(ordered: np.ndarray, documents: np.ndarray, place: np.ndarray) -> np.ndarray:
    """(n,) places in the order of lengths -> the nearest places, by length, with another document. There is one on one side at least."""
    changes = np.flatnonzero(documents[1:] != documents[:-1]) + 1
    later = np.searchsorted(changes, place, side="right")
    has_before, has_after = later > 0, later < len(changes)
    before = changes[np.maximum(later - 1, 0)] - 1
    after = changes[np.minimum(later, len(changes) - 1)]
    is_nearer = ordered[after] - ordered[place] < ordered[place] - ordered[before]
    return np.where(has_after & (~has_before | is_nearer), after, before)


def _plan(
    store: TokenStore, max_length: int, starts: np.ndarray, stops: np.ndarray, labels: np.ndarray, names: tuple[str, str], draws: Draws
) -> SentencePairs:
    lengths = stops - starts
    starts, stops = _truncate(starts, stops, max_length - PAIR_SPECIALS, draws)
    return SentencePairs(
        draws=draws,
        max_length=max_length,
        starts=starts,
        stops=stops,
        labels=labels.astype(np.int64),
        label_names=names,
        truncated=int((lengths != stops - starts).any(axis=1).sum()),
        document_sizes=Histogram.of(count_sentences(store)),
        sentence_sizes=Histogram.of(np.diff(distinct(store.sentence_starts))),
    )


def _truncate(starts: np.ndarray, stops: np.ndarray, room: int, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """(P, 2) segments -> the same, of at most room tokens a pair: the longer one loses, both to half where both are longer.

    A segment loses its front or its back, with probability 0.5 each (BERT's script throws that coin for each token).
    """
    first, second = (stops - starts).T
    kept_second = np.minimum(second, np.maximum(room // 2, room - first))
    kept = np.stack([np.minimum(first, room - kept_second), kept_second], axis=1)
    at_front = _uniform(draws, np.arange(len(starts)), "pair truncation", 2) < 0.5
    return np.where(at_front, stops - kept, starts), np.where(at_front, stops, starts + kept)


def _uniform(draws: Draws, numbers: np.ndarray, stream: str, slots: int) -> np.ndarray:
    """(n, slots) draws of the plan's epoch, for the things with these numbers."""
    return draws.uniform(np.full(len(numbers), draws.epoch), numbers, stream, slots)


def gather_pairs(store: TokenStore, plan: SentencePairs, index: np.ndarray) -> PairRows:
    """Read the pairs plan[index] from the store and lay them out, (B, L) each."""
    vocabulary = store.vocabulary
    starts, lengths = plan.starts[index], (plan.stops - plan.starts)[index]
    columns = np.arange(plan.max_length)
    first_separator = lengths[:, :1] + 1  # (B, 1)
    last_separator = first_separator + lengths[:, 1:] + 1
    is_second = columns > first_separator
    padding = columns > last_separator
    source = np.where(is_second, starts[:, 1:] - first_separator, starts[:, :1]) + (columns - 1)
    np.clip(source, 0, len(store.tokens) - 1, out=source)  # special places look anywhere
    separator = (columns == first_separator) | (columns == last_separator)
    special = separator | padding
    special[:, 0] = True
    input_ids = store.tokens[source].astype(np.int64)
    input_ids[:, 0] = vocabulary.cls_id
    np.putmask(input_ids, separator, vocabulary.sep_id)
    np.putmask(input_ids, padding, vocabulary.pad_id)
    attention_mask = (~padding).astype(np.int64)
    return PairRows(input_ids, attention_mask, columns * attention_mask, (is_second & ~padding).astype(np.int64), source, special)
