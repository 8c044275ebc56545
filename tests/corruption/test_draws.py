"""Draws are uniform, and what differs in any part of the key is independent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mlm_lab.corruption.draws import Draws

ROWS, SLOTS = 500, 400
INDEX = np.arange(ROWS)
ZEROS = np.zeros(ROWS, dtype=np.int64)
BASE = Draws(0, "train")


def base() -> np.ndarray:
    return BASE.uniform(ZEROS, INDEX, "mask", SLOTS)


OTHERS = {
    "seed": lambda: Draws(1, "train").uniform(ZEROS, INDEX, "mask", SLOTS),
    "negative seed": lambda: Draws(-1, "train").uniform(ZEROS, INDEX, "mask", SLOTS),
    "split": lambda: Draws(0, "validation").uniform(ZEROS, INDEX, "mask", SLOTS),
    "epoch": lambda: BASE.uniform(ZEROS + 1, INDEX, "mask", SLOTS),
    "next index": lambda: BASE.uniform(ZEROS, INDEX + 1, "mask", SLOTS),
    "far index": lambda: BASE.uniform(ZEROS, INDEX + 2**32, "mask", SLOTS),
    "stream": lambda: BASE.uniform(ZEROS, INDEX, "mask2", SLOTS),
    "next slot": lambda: np.roll(base(), 1, axis=1),
    "epoch and index swapped": lambda: BASE.uniform(INDEX, ZEROS, "mask", SLOTS),
}


@pytest.mark.parametrize("seed", [0, 1, 12345])
@pytest.mark.parametrize("stream", ["token", "replace"])
def test_uniform(seed: int, stream: str) -> None:
    drawn = Draws(seed, "train").uniform(ZEROS, INDEX, stream, SLOTS)
    assert drawn.min() >= 0 and drawn.max() < 1
    assert stats.chisquare(np.bincount((drawn * 256).astype(int).ravel(), minlength=256)).pvalue > 1e-4
    low_bits = (drawn * 2.0**53).astype(np.int64) & 255
    assert stats.chisquare(np.bincount(low_bits.ravel(), minlength=256)).pvalue > 1e-4
    # by column and by row: no slot and no example is special
    for axis in (0, 1):
        means = drawn.mean(axis=axis)
        assert stats.kstest((means - 0.5) * np.sqrt(12 * drawn.shape[axis]), "norm").pvalue > 1e-4


@pytest.mark.parametrize("other", OTHERS)
def test_trap_08_keys_that_differ_in_one_part_are_independent(other: str) -> None:
    first, second = base(), OTHERS[other]()
    if other == "epoch and index swapped":
        first, second = first[1:], second[1:]  # (0, 0) is the same key
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 4 / np.sqrt(first.size)
    pairs = (first * 16).astype(int) * 16 + (second * 16).astype(int)
    assert stats.chisquare(np.bincount(pairs.ravel(), minlength=256)).pvalue > 1e-4
    assert (first == second).mean() < 1e-4


def test_trap_08_parts_of_a_key_are_not_summed() -> None:
    def first(seed: int, epoch: int, index: int) -> float:
        return float(Draws(seed, "train").uniform(np.asarray([epoch]), np.asarray([index]), "mask", 1)[0, 0])

    keys = [(seed, epoch, index) for seed in range(6) for epoch in range(6) for index in range(6)]
    assert len({first(*key) for key in keys}) == len(keys)


def test_no_shifted_copies() -> None:
    """A row is not another one's draws some slots later (as with generators that start at nearby states)."""
    values = base().ravel()
    assert len(np.unique(values)) == len(values)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20), st.integers(1, 50), st.integers(-5, 2**70))
def test_trap_08_a_batch_equals_its_rows(index: list[int], slots: int, seed: int) -> None:
    draws, numbers = Draws(seed, "train"), np.asarray(index)
    epoch = numbers % 7
    together = draws.uniform(epoch, numbers, "x", slots)
    ranks = draws.ranks(epoch, numbers, "x", slots)
    for row in range(len(index)):
        one = slice(row, row + 1)
        assert (together[one] == draws.uniform(epoch[one], numbers[one], "x", slots)).all()
        assert (ranks[one] == draws.ranks(epoch[one], numbers[one], "x", slots)).all()


def test_named_slots_are_the_counted_ones() -> None:
    named = np.random.default_rng(0).integers(0, SLOTS, size=(ROWS, 33))
    assert (BASE.uniform(ZEROS, INDEX, "mask", named) == np.take_along_axis(base(), named, axis=1)).all()


def test_ranks_are_uniform() -> None:
    ranks = BASE.ranks(ZEROS, INDEX, "mask", SLOTS)
    assert ranks.dtype == np.uint32
    assert stats.chisquare(np.bincount((ranks >> 24).ravel(), minlength=256)).pvalue > 1e-4
    assert stats.chisquare(np.bincount((ranks & 255).ravel(), minlength=256)).pvalue > 1e-4


def test_values_stay_what_they_are() -> None:
    """Runs resume and compare across versions of this program: other numbers need another code_version of the objectives."""
    drawn = Draws(7, "train").uniform(np.asarray([3]), np.asarray([11]), "token", 2)
    assert drawn.tolist() == [[0.8918480766704514, 0.9642888673803011]]
    assert Draws(7, "train", epoch=2).permutation("order", 8).tolist() == [5, 7, 1, 3, 0, 4, 2, 6]


def test_permutations_are_uniform_and_keyed() -> None:
    orders = np.stack([Draws(seed, "train").permutation("order", 10) for seed in range(3000)])
    assert (np.sort(orders, axis=1) == np.arange(10)).all()
    for place in (0, 9):
        assert stats.chisquare(np.bincount(orders[:, place], minlength=10)).pvalue > 1e-4
    pairs = orders[:, 0] * 10 + orders[:, 1]
    assert stats.chisquare(np.bincount(pairs, minlength=100)[[a * 10 + b for a in range(10) for b in range(10) if a != b]]).pvalue > 1e-4
    one = Draws(0, "train").permutation("order", 100)
    for other in (replace(BASE, epoch=1), replace(BASE, seed=1), replace(BASE, split="validation")):
        assert (other.permutation("order", 100) == one).mean() < 0.2
    assert Draws(0, "train").permutation("order", 0).shape == (0,)
