"""Simultaneous intervals against scipy's multivariate t and its Dunnett test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mlm_lab.statistics.dunnett import simultaneous_critical
from mlm_lab.statistics.student import critical


@pytest.mark.parametrize(
    ("comparisons", "freedom", "published"), [(2, 5, 3.03), (4, 10, 2.89), (9, 20, 2.95), (3, 60, 2.41), (5, 15, 2.82)]
)
def test_the_published_two_sided_table(comparisons: int, freedom: int, published: float):
    """Dunnett, Biometrics 1964, table of two-sided 5 % points."""
    assert simultaneous_critical(comparisons, freedom, 0.05) == pytest.approx(published, abs=0.006)


@pytest.mark.parametrize(("comparisons", "freedom", "correlation"), [(2, 4, 0.5), (4, 8, 0.5), (3, 2, 0.2), (5, 30, 0.8)])
def test_the_multivariate_t(comparisons: int, freedom: int, correlation: float):
    bound = simultaneous_critical(comparisons, freedom, 0.05, correlation)
    shape = np.full((comparisons, comparisons), correlation) + (1 - correlation) * np.eye(comparisons)
    edges = np.full(comparisons, bound)
    inside = stats.multivariate_t.cdf(edges, lower_limit=-edges, shape=shape, df=freedom, maxpts=200_000, random_state=0)
    assert inside == pytest.approx(0.95, abs=5e-4)


def test_scipys_dunnett_in_the_unblocked_case():
    rng = np.random.default_rng(3)
    control, *arms = rng.normal(size=(4, 6))
    low, high = stats.dunnett(*arms, control=control, random_state=rng).confidence_interval(0.95)
    spread = np.sqrt(np.mean([group.var(ddof=1) for group in (control, *arms)]) * 2 / 6)
    half = simultaneous_critical(3, 4 * 5, 0.05) * spread
    centres = np.array([arm.mean() - control.mean() for arm in arms])
    assert centres - half == pytest.approx(low, abs=0.01)
    assert centres + half == pytest.approx(high, abs=0.01)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 20), st.integers(1, 60), st.sampled_from([0.01, 0.05, 0.2]), st.sampled_from([0.0, 0.3, 0.5, 0.9]))
def test_between_one_comparison_and_bonferroni(comparisons: int, freedom: int, alpha: float, correlation: float):
    bound = simultaneous_critical(comparisons, freedom, alpha, correlation)
    assert critical(freedom, alpha) <= bound <= critical(freedom, alpha / comparisons)
    assert simultaneous_critical(comparisons, freedom, alpha, 0.95) <= bound + 1e-9
