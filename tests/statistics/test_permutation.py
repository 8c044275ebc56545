"""The exact sign-flip test."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mlm_lab.statistics.permutation import sign_flip_p
from mlm_lab.statistics.power import smallest_p


@settings(deadline=None)
@given(st.lists(st.floats(-3, 3).map(lambda x: round(x, 2)), min_size=1, max_size=9))
def test_as_counting_every_pattern(differences: list[float]):
    hundredths = [round(100 * d) for d in differences]
    sums = [abs(sum(s * d for s, d in zip(signs, hundredths, strict=True))) for signs in itertools.product((-1, 1), repeat=len(hundredths))]
    assert sign_flip_p(differences) == sum(s >= abs(sum(hundredths)) for s in sums) / len(sums)


def test_scipys_permutation_test():
    differences = np.random.default_rng(6).normal(0.5, 1, 8)
    theirs = stats.permutation_test((differences, np.zeros(8)), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(differences.tolist()) == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize(("seeds", "least"), [(3, 0.25), (5, 0.0625), (6, 0.03125), (10, 2 / 1024)])
def test_trap_34_the_smallest_p_that_so_many_seeds_reach(seeds: int, least: float):
    assert sign_flip_p([1.0 + 0.1 * s for s in range(seeds)]) == smallest_p(seeds) == least


def test_no_difference_at_all():
    assert sign_flip_p([0.0, 0.0, 0.0]) == 1
    assert sign_flip_p([0.1, -0.1]) == 1


def test_thirty_seeds_are_counted_too():
    p = sign_flip_p(np.random.default_rng(0).normal(0.4, 1, 30).tolist())
    assert 0.001 < p < 0.2


@pytest.mark.parametrize("count", [0, 41])
def test_none_or_too_many(count: int):
    with pytest.raises(ValueError, match="differences"):
        sign_flip_p([1.0] * count)
