"""A cell: n, mean, deviation, median, t interval (traps.md 34)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mlm_lab.statistics.description import Description, describe


@settings(deadline=None)
@given(st.lists(st.integers(-1000, 1000).map(lambda tenths: tenths / 10), min_size=2, max_size=12), st.sampled_from([0.8, 0.95, 0.99]))
def test_trap_34_a_cell_as_scipy_has_it(values: list[float], level: float):
    cell = describe(values, level)
    low, high = stats.t.interval(level, len(values) - 1, loc=cell.mean, scale=stats.sem(values)) if cell.std else (cell.mean, cell.mean)
    assert cell.n == len(values)
    assert (cell.low, cell.high) == (pytest.approx(low, rel=1e-6, abs=1e-6), pytest.approx(high, rel=1e-6, abs=1e-6))
    assert cell.std == pytest.approx(np.std(values, ddof=1), rel=1e-6, abs=1e-6)


def test_trap_34_the_deviation_is_with_n_minus_one_and_the_median_is_not_the_mean():
    cell = describe([0.5, 0.7, 0.9, 0.5])
    assert (cell.mean, cell.median, cell.std) == (pytest.approx(0.65), pytest.approx(0.6), pytest.approx((0.11 / 3) ** 0.5))


def test_one_value_has_no_spread():
    assert describe([0.7]) == Description(n=1, mean=0.7, std=None, median=0.7, low=None, high=None)


def test_equal_values_have_an_interval_of_no_width():
    assert describe([0.25] * 3) == Description(n=3, mean=0.25, std=0.0, median=0.25, low=0.25, high=0.25)


@pytest.mark.parametrize("undefined", [None, math.nan, math.inf])
def test_trap_33_an_undefined_value_is_not_averaged_and_not_left_out(undefined: float | None):
    assert describe([0.5, undefined, 0.6]) == Description(n=3, mean=None, std=None, median=None, low=None, high=None)
    assert describe([]) == Description(n=0, mean=None, std=None, median=None, low=None, high=None)
