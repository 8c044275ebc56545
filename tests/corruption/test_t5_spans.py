"""T5's spans: lengths against its table and a brute-force search, partitions, and texts that come back whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm_lab.corruption.draws import Draws
from mlm_lab.corruption.t5_spans import count_spans, draw_noise, draw_partitions, longest_text, split_texts
from mlm_lab.types import Vocabulary
from tests.corruption.stores import VOCABULARY

DRAWS = Draws(0, "train")
DESCENDING = replace(VOCABULARY, sentinel_ids=tuple(range(199, 100, -1)))
"""As in T5's own vocabulary: extra_id_0 is the last id, so a loop that counts up from it leaves the vocabulary."""


def numbers(count: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + count)


def join_texts(inputs: list[int], targets: list[int], vocabulary: Vocabulary) -> list[int]:
    """Interleave one row's inputs and targets, reading both from left to right, by nothing but the order of the sentinels."""
    end, upcoming = vocabulary.sep_id, iter([*vocabulary.sentinel_ids, None])
    text: list[int] = []
    spans: dict[int, list[int]] = {}
    sentinel = next(upcoming)
    for token in targets[: targets.index(end)]:
        if token == sentinel:
            span = spans[token] = []
            sentinel = next(upcoming)
        else:
            span.append(token)
    for token in inputs[: inputs.index(end)]:
        text += spans.pop(token) if token in spans else [token]
    assert not spans, "each span has its gap"
    return text


def half_even(x: float) -> int:
    below = floor(x)
    return below + (x - below > 0.5 or (x - below == 0.5 and below % 2 == 1))


def brute_force(encoder_length: int, ratio: float, mean: float) -> tuple[int, int, int, int]:
    """Raw length, decoder length, spans and noise by trying every length (with ratios up to 0.9)."""
    found = None
    for raw in range(2, 11 * encoder_length + 20):
        noise = min(max(half_even(raw * ratio), 1), raw - 1)
        spans = min(max(1, half_even(noise / mean)), raw - noise)
        if raw - noise + spans + 1 <= encoder_length:
            found = raw, noise + spans + 1, spans, noise
    return found


@pytest.mark.parametrize(
    ("encoder_length", "mean", "raw", "decoder_length", "spans"),
    [
        (64, 3.0, 70, 14, 3),
        (128, 3.0, 141, 29, 7),
        (256, 3.0, 284, 58, 14),
        (512, 3.0, 568, 114, 28),
        (1024, 3.0, 1137, 229, 57),
        (512, 1.0, 511, 155, 77),
    ],
)
def test_trap_21_lengths_of_the_table(encoder_length: int, mean: float, raw: int, decoder_length: int, spans: int) -> None:
    assert longest_text(encoder_length, 0.15, mean) == raw
    counts = count_spans(raw, 0.15, mean)
    assert (counts.encoder, counts.decoder, counts.spans) == (encoder_length, decoder_length, spans)
    assert count_spans(raw + 1, 0.15, mean).encoder > encoder_length


def test_trap_21_half_of_512_needs_128_spans() -> None:
    assert count_spans(longest_text(512, 0.5, 3.0), 0.5, 3.0).spans == 128


def test_trap_21_lengths_equal_a_brute_force_search() -> None:
    generator = np.random.default_rng(0)
    for _ in range(300):
        encoder_length = int(generator.integers(3, 130))
        ratio, mean = float(generator.choice([0.15, 0.25, 0.5, generator.uniform(0.01, 0.9)])), float(generator.choice([1, 2, 3, 3.5, 8]))
        raw = longest_text(encoder_length, ratio, mean)
        counts = count_spans(raw, ratio, mean)
        assert (raw, counts.decoder, counts.spans, counts.noise) == brute_force(encoder_length, ratio, mean), (encoder_length, ratio, mean)


def test_trap_21_lengths_of_a_batch_are_those_of_its_rows() -> None:
    lengths, ratios = np.asarray([2, 3, 10, 141, 70]), np.asarray([0.15, 0.5, 0.5, 0.15, 0.9])
    together = count_spans(lengths, ratios, 3.0)
    for row, (length, ratio) in enumerate(zip(lengths, ratios, strict=True)):
        assert [part[row] for part in together] == [int(part) for part in count_spans(int(length), float(ratio), 3.0)]
    assert list(together.noise[:3]) == [1, 2, 5] and list(together.spans[:3]) == [1, 1, 2], "half to even: 1.5 and 5 / 3"


def test_trap_22_each_composition_is_as_likely_as_any_other() -> None:
    rows = 20_000
    parts = draw_partitions(np.full(rows, 7), np.full(rows, 3), DRAWS, np.zeros(rows, int), numbers(rows), "parts")
    assert (parts.sum(axis=1) == 7).all() and parts.min() >= 1
    found = Counter(map(tuple, parts.tolist()))
    everything = {tuple(np.diff([0, *cuts, 7]).tolist()) for cuts in combinations(range(1, 7), 2)}
    assert set(found) == everything and len(everything) == 15
    expected = rows / 15
    assert sum((count - expected) ** 2 / expected for count in found.values()) < 36.1  # 14 degrees of freedom, p = 0.001


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2, 60), st.floats(0.02, 0.95)), min_size=1, max_size=6), st.sampled_from([1.0, 2.5, 3.0]), st.booleans()
)
def test_trap_22_spans_alternate_and_texts_come_back(texts: list[tuple[int, float]], mean: float, roll: bool) -> None:
    lengths, ratios = np.asarray([length for length, _ in texts]), np.asarray([ratio for _, ratio in texts])
    counts, rows = count_spans(lengths, ratios, mean), len(texts)
    width = int(lengths.max()) + 3
    noise = draw_noise(lengths, counts, width, roll, DRAWS, np.zeros(rows, int), numbers(rows))
    tokens = np.random.default_rng(0).integers(5, 90, size=(rows, width))
    inputs, targets = split_texts(tokens, lengths, noise, (int(counts.encoder.max()) + 2, int(counts.decoder.max()) + 2), DESCENDING)
    for row, length in enumerate(lengths):
        mask = noise[row]
        assert not mask[length:].any() and mask.sum() == counts.noise[row]
        assert (np.diff(mask[:length].astype(int), prepend=0) == 1).sum() == counts.spans[row]
        if not roll:
            assert not mask[0] and mask[length - 1], "begins with kept text, ends with a span"
        assert (inputs[row] != 0).sum() == counts.encoder[row] and (targets[row] != 0).sum() == counts.decoder[row]
        assert join_texts(inputs[row].tolist(), targets[row].tolist(), DESCENDING) == tokens[row, :length].tolist()
        alone = draw_noise(
            lengths[row : row + 1], count_spans(length, ratios[row : row + 1], mean), width, roll, DRAWS, numbers(1), numbers(1, row)
        )
        assert (alone[0] == mask).all()


def test_trap_22_noise_is_removed_by_mask_whatever_the_ids_are() -> None:
    """Ids of padding, of the end and of sentinels are text here. Taking them out by value would shorten the rows."""
    lengths = np.asarray([12])
    noise = np.zeros((1, 12), dtype=bool)
    noise[0, [3, 4, 9]] = True
    text = [0, 0, 3, 199, 0, 3, 198, -1, 7, -1, 0, 3]
    inputs, targets = split_texts(np.asarray([text]), lengths, noise, (12, 6), DESCENDING)
    assert inputs.tolist() == [[0, 0, 3, 199, 3, 198, -1, 7, 198, 0, 3, 3]]
    assert targets.tolist() == [[199, 199, 0, 198, -1, 3]]


def test_trap_22_roll_begins_anywhere_and_keeps_the_counts() -> None:
    rows, length = 6000, 20
    lengths, counts = np.full(rows, length), count_spans(np.full(rows, length), 0.3, 3.0)
    noise = draw_noise(lengths, counts, length, True, DRAWS, np.zeros(rows, int), numbers(rows))
    assert (noise.sum(axis=1) == 6).all() and ((noise & ~np.roll(noise, 1, axis=1)).sum(axis=1) == 2).all(), "two spans as in a ring"
    assert (np.diff(noise.astype(int), prepend=0, axis=1) == 1).sum(axis=1).tolist() == [2] * rows, "and in the row"
    # 14 kept tokens and 2 spans can come first: a row begins with a span once in eight times, and ends with kept text as often as not.
    assert abs(noise[:, 0].mean() - 2 / 16) < 0.02 and 0.8 < (~noise[:, -1]).mean() < 0.95
    plain = draw_noise(lengths, counts, length, False, DRAWS, np.zeros(rows, int), numbers(rows))
    assert not plain[:, 0].any() and plain[:, -1].all()


def test_trap_08_draws_follow_epoch_and_index() -> None:
    lengths, counts = np.full(4, 400), count_spans(np.full(4, 400), 0.15, 3.0)
    first, again, other_epoch = (draw_noise(lengths, counts, 400, False, DRAWS, np.full(4, epoch), numbers(4)) for epoch in (0, 0, 1))
    assert (first == again).all() and not (first == other_epoch).all(axis=1).any()
    assert len({row.tobytes() for row in first}) == 4
