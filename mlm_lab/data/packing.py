"""Packing: rows of a batch as contiguous ranges of the token store, with [CLS] and [SEP] round each document's part.

    store    ... d0 d0 d0 | d1 d1 | d2 d2 d2 d2 ...           a row is [start, stop) and may span documents
    row      CLS d0 d0 SEP CLS d1 d1 SEP CLS d2 SEP PAD       max_length positions
    numbers   1  1  1  1   2  2  2  2   3  3  3   0           attention_mask: who attends to whom

The three formats (the first two are RoBERTa's, Liu et al. 2019, section 4.2):

full_sentences      whole sentences, as many as fit; a row may cross documents
document_sentences  the same, but a row ends with its document
contiguous          rows are filled to the last place and cut sentences; a place or two stay empty where no document's part would fit

A sentence that is longer than a row is cut into pieces of a row's length. A row of fewer than `SHORTEST_ROW` tokens has no context to
predict from and is left out (counted in `PackedRows.dropped_tokens`).

Shapes: T tokens, S sentences, N documents of the store; R rows of the plan; B rows of L positions in a batch.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.token_store import TokenStore
from mlm_lab.errors import UserError

INPUT_FORMATS = ("full_sentences", "document_sentences", "contiguous")
SHORTEST_ROW = 2
SENTENCES_AT_A_TIME = 1 << 18
SPECIALS = 2
"""Places that a document's part takes beside its tokens: [CLS] and [SEP]."""


@dataclass(frozen=True)
class PackedRows:
    """The plan of an epoch of packed rows; every epoch has the same one."""

    draws: Draws
    max_length: int
    starts: np.ndarray
    """(R,) int64 offsets into the store's tokens."""
    stops: np.ndarray
    """(R,) int64"""
    document_offsets: np.ndarray
    """(N' + 1,) int64: where the documents start, those without tokens left out."""
    dropped_tokens: int
    """Tokens in rows that were too short to be useful."""
    redrawn: bool = False

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def corpus_tokens(self) -> int:
        """Tokens of an epoch, special tokens not counted."""
        return int((self.stops - self.starts).sum())


class Rows(NamedTuple):
    """Packed rows before corruption."""

    input_ids: np.ndarray  # (B, L) int64
    attention_mask: np.ndarray  # (B, L) int64; the documents of a row numbered from 1, 0 = padding
    position_ids: np.ndarray  # (B, L) int64; 0 at each [CLS]
    source: np.ndarray  # (B, L) int64 offset into the store's tokens; of no meaning where special
    special: np.ndarray  # (B, L) bool; [CLS], [SEP] and padding

    def as_one_document(self) -> tuple[np.ndarray, np.ndarray]:
        """attention_mask and position_ids (B, L) each, as if a row's documents were one: all see each other, positions run on."""
        attention_mask = (self.attention_mask > 0).astype(np.int64)
        return attention_mask, attention_mask * np.arange(attention_mask.shape[1])


def plan_rows(store: TokenStore, max_length: int, input_format: str, draws: Draws) -> PackedRows:
    """The plan of an objective that trains on packed rows.

    Raises:
        UserError: rows have no room for a token, or the split has too few tokens for a row.
    """
    if max_length <= SPECIALS:
        raise UserError("a row has no room for a token between [CLS] and [SEP]", where="max_length", given=max_length, allowed="3 or more")
    plan = pack_rows(store, max_length, input_format, draws)
    if len(plan) == 0:
        raise UserError(
            f"the {store.split} split is too small: it has no document of two tokens or more",
            given=f"{store.num_documents} documents, {len(store.tokens)} tokens",
            fix="give more text in data.files",
        )
    return plan


def pack_rows(store: TokenStore, max_length: int, input_format: str, draws: Draws) -> PackedRows:
    """Lay out the rows of an epoch. max_length counts special tokens and is at least 3."""
    return PackedRows(draws, max_length, *_layout(store, max_length, input_format))


@lru_cache(maxsize=8)
def _layout(store: TokenStore, max_length: int, input_format: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """What the draws do not decide: starts, stops, document_offsets, dropped_tokens of `PackedRows`. A run asks for the same one for its
    batches, its costs and the time of a step."""
    offsets = distinct(store.document_offsets)
    if len(offsets) < 2:
        starts = stops = np.zeros(0, dtype=np.int64)
    elif input_format == "contiguous":
        starts, stops = _contiguous_rows(offsets, max_length)
    else:
        starts, stops = _sentence_rows(store, offsets, max_length, cross_documents=input_format == "full_sentences")
    useful = stops - starts >= SHORTEST_ROW
    dropped = int((stops - starts)[~useful].sum())
    return starts[useful], stops[useful], offsets, dropped


def _sentence_rows(store: TokenStore, offsets: np.ndarray, max_length: int, cross_documents: bool) -> tuple[np.ndarray, np.ndarray]:
    """Greedy: each row takes all sentences that fit. (R,) starts and stops.

    A row from sentence i up to and with sentence j takes stop_j - start_i + 2 (document_j - document_i + 1) places, so the furthest j of
    every i comes from one sorted search over stop_j + 2 document_j; the rows are then the chain 0 -> next[0] -> ... So many sentences at a
    time, the next from where the last row ends, that memory does not grow with the corpus beyond the rows themselves.
    """
    borders, position, found = store.sentence_starts, 0, []
    block = SENTENCES_AT_A_TIME
    while position < borders[-1]:
        sentence = np.searchsorted(borders, position, side="right") - 1
        part = np.array(borders[sentence : sentence + block + 1])
        part[0] = position  # a long sentence may have been begun
        pieces = _cut_long(distinct(part), max_length - SPECIALS)
        rows = _chain(pieces, offsets, max_length, cross_documents, to_the_end=part[-1] == borders[-1])
        if len(rows[0]) == 0:  # one row takes them all
            block *= 2
            continue
        found.append(rows)
        position = rows[1][-1]
    starts, stops = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return starts, stops


def _chain(
    borders: np.ndarray, offsets: np.ndarray, max_length: int, cross_documents: bool, to_the_end: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of some sentences, from the first on: (R,) starts and stops. Unless these are the last ones, a row that reaches their end
    may go on beyond it, and is left for the next time."""
    starts, stops = borders[:-1], borders[1:]
    document = np.searchsorted(offsets, starts, side="right") - 1
    next_sentence = np.searchsorted(stops + SPECIALS * document, starts + SPECIALS * (document - 1) + max_length, side="right")
    if not cross_documents:
        next_sentence = np.minimum(next_sentence, np.searchsorted(document, document, side="right"))
    chain, following, sentence = [], next_sentence.tolist(), 0
    end = len(following) if to_the_end else len(following) - 1
    while sentence < len(following) and following[sentence] <= end:
        chain.append(sentence)
        sentence = following[sentence]
    first = np.asarray(chain, dtype=np.int64)
    return starts[first], stops[next_sentence[first] - 1]


def distinct(borders: np.ndarray) -> np.ndarray:
    """Borders in order, without the repeated ones that empty sentences and documents leave (`np.unique` hashes, which is slow)."""
    borders = np.asarray(borders)
    return borders[np.append(True, borders[1:] > borders[:-1])]


def _cut_long(borders: np.ndarray, longest: int) -> np.ndarray:
    """Borders with more of them, so that no piece is longer than `longest`."""
    lengths = np.diff(borders)
    pieces = -(-lengths // longest)
    if (pieces == 1).all():
        return borders
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)  # of the piece in its sentence
    return np.append(np.repeat(borders[:-1], pieces) + longest * number, borders[-1])


def _contiguous_rows(offsets: np.ndarray, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """(R,) starts and stops. Rows within a document are counted at once; only rows that cross a border cost a step of the loop."""
    room = max_length - SPECIALS
    ends = offsets[1:]
    last = len(ends) - 1
    end_list = ends.tolist()
    cost_list = (ends + SPECIALS * np.arange(len(ends))).tolist()  # places up to the end of a document, specials between documents counted
    total = end_list[-1]
    firsts, counts, crossing_stops = [], [], []
    start = document = 0
    while start < total:
        inside = (end_list[document] - start) // room
        firsts.append(start)
        counts.append(inside)
        start += inside * room
        if start == end_list[document]:
            document += 1
            crossing_stops.append(start)
            continue
        # The row takes this document's rest, all documents that fit whole, and what then fits of the next one.
        limit = start + SPECIALS * (document - 1) + max_length
        whole = bisect_right(cost_list, limit, lo=document)
        left = limit - cost_list[whole - 1] - SPECIALS
        document, start = (whole, end_list[whole - 1] + left) if left > 0 and whole <= last else (whole, end_list[whole - 1])
        crossing_stops.append(start)
    return _expand_runs(np.asarray(firsts), np.asarray(counts), np.asarray(crossing_stops), room)


def _expand_runs(firsts: np.ndarray, counts: np.ndarray, crossing_stops: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """A run is counts[i] full rows from firsts[i] on, and then one row up to crossing_stops[i] if there is anything left."""
    rows = counts + (firsts + counts * room < crossing_stops)
    number = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    starts = np.repeat(firsts, rows) + room * number
    stops = np.append(starts[1:], crossing_stops[-1])
    return starts, stops


def gather_rows(store: TokenStore, plan: PackedRows, index: np.ndarray) -> Rows:
    """Read the rows plan[index] from the store and lay them out, (B, L) each.

    In the part of the n-th document of a row (from 1), place l holds token start + l + 1 - 2 n, since the row is contiguous in the store
    and each part adds two places. So what a place holds is l and a number for its part, which is repeated over the part's places.
    """
    vocabulary, length = store.vocabulary, plan.max_length
    starts, stops = plan.starts[index], plan.stops[index]
    row, number, opens, closes, ends = _document_parts(plan.document_offsets, starts, stops)
    # All parts of the batch in order of place, with the padding of each row as one part more (of no places where the row is full).
    part = np.arange(len(row)) + row
    padding_part = np.bincount(row, minlength=len(index)).cumsum() + np.arange(len(index))
    first_places = np.empty(len(row) + len(index), dtype=np.int64)
    first_places[part], first_places[padding_part] = opens, ends
    widths = np.diff(
        first_places + np.repeat(np.arange(len(index)), np.diff(padding_part, prepend=-1)) * length, append=len(index) * length
    )

    def over_places(per_part: np.ndarray) -> np.ndarray:
        values = np.zeros(len(first_places), dtype=np.int64)
        values[part] = per_part
        return np.repeat(values, widths).reshape(len(index), length)

    columns = np.arange(length)
    numbers = over_places(number)
    padding = numbers == 0
    position_ids = columns - over_places(opens)
    source = over_places(starts[row] + 1 - SPECIALS * number)
    source += columns
    np.clip(source, 0, len(store.tokens) - 1, out=source)  # special places look anywhere
    special = padding.copy()
    special[row, opens] = special[row, closes] = True
    input_ids = store.tokens[source].astype(np.int64)
    input_ids[row, opens], input_ids[row, closes] = vocabulary.cls_id, vocabulary.sep_id
    np.putmask(input_ids, padding, vocabulary.pad_id)
    np.putmask(position_ids, padding, 0)
    return Rows(input_ids, numbers, position_ids, source, special)


def _document_parts(
    offsets: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(P,) row, number in its row (from 1), place of [CLS], place of [SEP] of each document's part; (B,) places that each row uses."""
    first = np.searchsorted(offsets, starts, side="right") - 1
    last = np.searchsorted(offsets, stops, side="left") - 1
    parts = last - first + 1  # (B,)
    row = np.repeat(np.arange(len(starts)), parts)  # (P,)
    before = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)  # parts of the row before this one
    document = first[row] + before
    opens = np.maximum(offsets[document], starts[row]) - starts[row] + SPECIALS * before
    closes = np.minimum(offsets[document + 1], stops[row]) - starts[row] + SPECIALS * before + 1
    return row, before + 1, opens, closes, stops - starts + SPECIALS * parts
