"""k of n with an exact interval."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mlm_lab.statistics.proportions import Proportion, proportion


@settings(deadline=None)
@given(st.integers(1, 40), st.data(), st.sampled_from([0.8, 0.95]))
def test_as_scipy_has_it(n: int, data: st.DataObject, level: float):
    k = data.draw(st.integers(0, n))
    ours, theirs = proportion(k, n, level), stats.binomtest(k, n).proportion_ci(level, method="exact")
    assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=1e-9), pytest.approx(theirs.high, abs=1e-9))
    assert ours.share == k / n


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("true", [0.03, 0.25, 0.5, 0.9])
def test_covers_at_least_as_stated(n: int, true: float):
    """Summed over all outcomes, so exactly."""
    held = [proportion(k, n) for k in range(n + 1)]
    assert sum(stats.binom.pmf(p.k, n, true) for p in held if p.low <= true <= p.high) >= 0.95


def test_no_runs_say_nothing():
    assert proportion(0, 0) == Proportion(k=0, n=0, share=None, low=0.0, high=1.0)
    with pytest.raises(ValueError, match="4 of 3"):
        proportion(4, 3)
