"""What a number of seeds can show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from mlm_lab.statistics.power import attainable, detectable_difference, detectable_distance, power_of, seeds_needed, smallest_p


def test_the_power_of_a_paired_t_test_as_statsmodels_has_it():
    power = pytest.importorskip("statsmodels.stats.power")
    for seeds in (3, 5, 10):
        of_difference = detectable_difference(1.0, seeds) / 2**0.5  # in deviations of a difference of two runs
        assert power.TTestPower().power(of_difference, seeds, 0.05) == pytest.approx(0.8, abs=1e-6)


@settings(deadline=None)
@given(st.integers(1, 2000), st.floats(0, 30), st.sampled_from([0.05, 0.0125, 0.001]))
def test_scipys_noncentral_t_where_it_is_one(freedom: int, distance: float, alpha: float):
    bound = stats.t.isf(alpha / 2, freedom)
    upper, lower = stats.nct.sf(bound, freedom, distance), stats.nct.cdf(-bound, freedom, distance)
    if math.isfinite(upper + lower):
        assert power_of(distance, freedom, alpha) == pytest.approx(upper + lower, abs=1e-7)


@pytest.mark.parametrize(("freedom", "alpha"), [(1, 0.05), (1, 0.001), (2, 0.0125), (2, 0.02), (4, 0.05), (100_000, 0.05)])
def test_the_detectable_distance_has_its_power_where_scipy_has_none(freedom: int, alpha: float):
    """By the other integral: over the difference's own error, of the chance that the spread is small enough."""
    distance, bound = detectable_distance(freedom, alpha), stats.t.isf(alpha / 2, freedom)
    error = np.linspace(-9, 9, 40_001)
    found = special.gammainc(freedom / 2, freedom * ((error + distance) / bound) ** 2 / 2)
    assert np.trapezoid(found * stats.norm.pdf(error), error) == pytest.approx(0.8, abs=1e-6)


def test_without_a_difference_the_power_is_the_error_rate():
    assert power_of(0.0, 4, 0.05) == pytest.approx(0.05)


@settings(deadline=None)
@given(st.floats(0.05, 3), st.floats(0.1, 3), st.integers(2, 6), st.integers(1, 4))
def test_the_seeds_needed_are_the_fewest_that_show_it(std: float, difference: float, arms: int, comparisons: int):
    seeds = seeds_needed(std, difference, arms, comparisons=comparisons)
    assert detectable_difference(std, seeds, arms, comparisons=comparisons) <= difference
    fewer = detectable_difference(std, seeds - 1, arms, comparisons=comparisons)
    assert fewer is None or fewer > difference


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(2, 6))
def test_more_seeds_more_arms_and_less_spread_show_more(seeds: int, arms: int):
    here = detectable_difference(1.0, seeds, arms)
    assert detectable_difference(1.0, seeds + 1, arms) < here
    assert detectable_difference(1.0, seeds, arms + 1) < here  # their spread is pooled
    assert detectable_difference(0.5, seeds, arms) == pytest.approx(here / 2)
    assert detectable_difference(1.0, seeds, arms, comparisons=2) > here


def test_no_difference_needs_more_seeds_than_there_are():
    for std, difference in [(1.0, 0.0), (1.0, -1.0), (1.0, float("nan")), (1.0, 1e-9)]:
        with pytest.raises(ValueError, match="a difference of"):
            seeds_needed(std, difference)


def test_trap_34_what_a_grid_can_show_is_said_before_it_runs():
    plan = attainable(3, 5)
    assert (plan.degrees_of_freedom, plan.smallest_p, plan.seeds_for_permutation) == (8, 0.25, 6)
    assert plan.detectable_primary == detectable_difference(1.0, 3, 5)
    assert plan.detectable_others == detectable_difference(1.0, 3, 5, comparisons=3)
    assert plan.lines() == [
        "5 arms, 3 seeds: 8 degrees of freedom for the spread",
        "permutation test: smallest attainable p 0.25, so none is made: p < 0.05 needs 6 seeds",
        "detectable difference (power 80%, in standard deviations of a run about its arm and seed): 2.61 by the primary contrast, "
        "3.24 by each of the others (Holm)",
    ]


def test_a_pilot_puts_it_in_the_metrics_unit():
    lines = attainable(6, 2, std=0.1).lines()
    assert lines[1:] == [
        "permutation test: smallest attainable p 0.031",
        "detectable difference (power 80%): 0.203 by the primary contrast",
    ]
    assert attainable(6, 2).detectable_others is None


@pytest.mark.parametrize(("seeds", "arms", "why"), [(1, 3, "nothing is repeated"), (3, 1, "there is one arm")])
def test_a_grid_that_can_show_nothing_says_so(seeds: int, arms: int, why: str):
    assert attainable(seeds, arms).lines()[-1] == f"detectable difference: none, for {why}"


def test_smallest_p_is_a_probability():
    assert [smallest_p(n) for n in (0, 1, 2, 3)] == [1, 1, 0.5, 0.25]
