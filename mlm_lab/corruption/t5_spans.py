"""T5's span corruption: spans of a text are cut out, a sentinel stands in the gap, and the targets say what each sentinel stands for
(Raffel et al. 2020, section 3.1.4 and figure 2).

    text     Thank you [for inviting] me to your party [last] week        n noise tokens in s spans
    inputs   Thank you <extra_id_0> me to your party <extra_id_1> week SEP             L - n + s + 1
    targets  <extra_id_0> for inviting <extra_id_1> last SEP                               n + s + 1

Noise is a mask over places. No id is ever taken for a sign of anything.

Shapes: B rows, L places of the longest text, S spans of the row that has most, E encoder and D decoder positions.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.types import Vocabulary

SHORTEST_TEXT = 2
"""Tokens that a text needs: one is kept and one is noise."""
_UNBOUNDED = 2**40


class SpanCounts(NamedTuple):
    """How a text of each length is corrupted; all (B,) int64, or scalars."""

    noise: np.ndarray
    spans: np.ndarray
    encoder: np.ndarray
    """Encoder positions: kept tokens, sentinels, the end."""
    decoder: np.ndarray
    """Decoder positions: sentinels, noise, the end."""


def count_spans(length: np.ndarray | int, mask_ratio: np.ndarray | float, mean_span_length: float) -> SpanCounts:
    """Noise tokens round(length * mask_ratio) and spans round(noise / mean_span_length), half to even, for texts from `SHORTEST_TEXT` on.

    At least one token is noise and one is kept, there is at least one span, and no more spans than kept tokens, since one kept token or
    more stands before each.
    """
    length = np.asarray(length, dtype=np.int64)
    noise = np.clip(np.rint(length * mask_ratio).astype(np.int64), 1, length - 1)
    spans = np.clip(np.rint(noise / mean_span_length).astype(np.int64), 1, length - noise)
    return SpanCounts(noise, spans, length - noise + spans + 1, noise + spans + 1)


@lru_cache(maxsize=64)
def longest_text(encoder_length: int, mask_ratio: float, mean_span_length: float) -> int:
    """Tokens of the longest text whose encoder input has at most encoder_length positions (from 3 on). mask_ratio is below 1.

    The encoder length never falls as the text grows by a token: noise grows by one or not, and spans by one at most where it does.
    """
    lengths = range(SHORTEST_TEXT, _UNBOUNDED)
    fitting = bisect_right(lengths, encoder_length, key=lambda length: int(count_spans(length, mask_ratio, mean_span_length).encoder))
    return lengths[fitting - 1]


def draw_noise(
    lengths: np.ndarray, counts: SpanCounts, width: int, roll: bool, draws: Draws, epoch: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """(B, width) bool: which places are noise, for texts of these lengths (B,).

    The noise and the kept tokens are each parted at random into as many parts as there are spans, each partition as likely as any other,
    and the parts alternate, kept ones first: so the first token is never noise and the last one always is. With roll the alternation starts
    anywhere, as in a ring, but for the middle of a span, which would make one span more (T5's own roll splits it).
    """
    kept_parts = draw_partitions(lengths - counts.noise, counts.spans, draws, epoch, index, "kept parts")  # (B, S)
    noise_parts = draw_partitions(counts.noise, counts.spans, draws, epoch, index, "noise parts")
    parts = np.stack([kept_parts, noise_parts], axis=2).reshape(len(lengths), -1)
    parts = np.append(parts, (width - lengths)[:, None], axis=1)  # (B, 2 S + 1); padding is kept
    is_noise = np.tile(np.arange(parts.shape[1]) % 2 == 1, len(lengths))
    noise = np.repeat(is_noise, parts.ravel()).reshape(len(lengths), width)
    if not roll:
        return noise
    columns = np.arange(width)
    inside = columns < lengths[:, None]
    starts = inside & (~noise | _opens(noise))  # a span or a kept token begins
    chosen = draws.uniform(epoch, index, "roll", 1) * starts.sum(axis=1, keepdims=True)
    first = (np.cumsum(starts, axis=1) > np.floor(chosen)).argmax(axis=1)[:, None]
    return np.take_along_axis(noise, np.where(inside, (columns + first) % lengths[:, None], columns), axis=1)


def draw_partitions(totals: np.ndarray, parts: np.ndarray, draws: Draws, epoch: np.ndarray, index: np.ndarray, stream: str) -> np.ndarray:
    """(B, S) int64: totals[b] in parts[b] positive parts, each composition as likely as any other; 0 behind a row's last part.

    A composition is a choice of parts - 1 borders among totals - 1 places: those of the smallest random numbers.
    """
    places = np.arange(int(totals.max()) - 1, dtype=np.uint64)
    borders = int(parts.max()) - 1
    cuts = np.broadcast_to(totals[:, None], (len(totals), borders)).copy()
    if borders:
        keys = draws.ranks(epoch, index, stream, len(places)).astype(np.uint64) << np.uint64(32) | places
        keys[places >= (totals - 1).astype(np.uint64)[:, None]] = np.iinfo(np.uint64).max
        keys.partition(borders - 1, axis=1)
        smallest = np.sort(keys[:, :borders], axis=1)
        chosen = np.arange(borders) < parts[:, None] - 1
        cuts[chosen] = (smallest[chosen] & np.uint64(2**32 - 1)).astype(np.int64) + 1
        cuts.sort(axis=1)
    return np.diff(cuts, prepend=0, append=totals[:, None], axis=1)


class Corrupted(NamedTuple):
    """Texts that were taken apart. What is behind a row's end holds the padding id."""

    inputs: np.ndarray  # (B, E) int64
    targets: np.ndarray  # (B, D) int64


def split_texts(tokens: np.ndarray, lengths: np.ndarray, noise: np.ndarray, shape: tuple[int, int], vocabulary: Vocabulary) -> Corrupted:
    """Take texts apart. tokens, noise (B, L), lengths (B,), shape (E, D). Both parts end with SEP, which is the end of sequence here."""
    opens = _opens(noise)
    stays = opens | ((np.arange(tokens.shape[1]) < lengths[:, None]) & ~noise)
    span = np.cumsum(opens, axis=1) - 1  # number of the last span that has begun
    input_place = np.cumsum(stays, axis=1) - 1
    target_place = np.cumsum(noise, axis=1) + span  # each sentinel takes a place before its span
    inputs, targets = (np.full((len(tokens), width), vocabulary.pad_id, dtype=np.int64) for width in shape)

    row, column = np.nonzero(stays)
    inputs[row, input_place[row, column]] = tokens[row, column]
    row, column = np.nonzero(noise)
    targets[row, target_place[row, column]] = tokens[row, column]
    row, column = np.nonzero(opens)
    sentinels = np.asarray(vocabulary.sentinel_ids, dtype=np.int64)[span[row, column]]
    inputs[row, input_place[row, column]] = sentinels
    targets[row, target_place[row, column] - 1] = sentinels
    for part, place in ((inputs, input_place), (targets, target_place)):
        part[np.arange(len(tokens)), place[:, -1] + 1] = vocabulary.sep_id
    return Corrupted(inputs, targets)


def _opens(noise: np.ndarray) -> np.ndarray:
    """(B, L) bool: the first place of each span."""
    opens = noise.copy()
    opens[:, 1:] &= ~noise[:, :-1]
    return opens
