"""Two one-sided tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mlm_lab.statistics.blocks import Estimate, fit_blocks
from mlm_lab.statistics.equivalence import equivalence_p
from mlm_lab.statistics.student import critical


@pytest.mark.parametrize("shift", [-0.3, 0.0, 0.4])
def test_scipys_two_one_sided_tests(shift: float):
    rng = np.random.default_rng(4)
    ours, theirs = rng.normal(shift, 0.2, 5), rng.normal(0, 0.2, 5)
    arms = {"theirs": dict(enumerate(theirs.tolist())), "ours": dict(enumerate(ours.tolist()))}
    above = stats.ttest_1samp(ours - theirs, -0.5, alternative="greater").pvalue
    below = stats.ttest_1samp(ours - theirs, 0.5, alternative="less").pvalue
    assert equivalence_p(fit_blocks(arms, "theirs").estimates["ours"], 0.5) == pytest.approx(max(above, below))


def test_statsmodels_paired_tost():
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    rng = np.random.default_rng(5)
    ours, theirs = rng.normal(0.1, 1, (2, 8))
    arms = {"theirs": dict(enumerate(theirs.tolist())), "ours": dict(enumerate(ours.tolist()))}
    expected = weightstats.ttost_paired(ours, theirs, -0.9, 0.9)[0]
    assert equivalence_p(fit_blocks(arms, "theirs").estimates["ours"], 0.9) == pytest.approx(expected)


@settings(deadline=None)
@given(st.floats(-2, 2), st.floats(0.01, 2), st.integers(1, 40), st.floats(0.01, 3))
def test_it_holds_where_the_interval_of_ninety_percent_lies_within_the_margin(difference: float, error: float, freedom: int, margin: float):
    estimate = Estimate(difference=difference, standard_error=error, degrees_of_freedom=freedom)
    reach = abs(difference) + critical(freedom, 0.1) * error
    if abs(reach - margin) > 1e-6:
        assert (equivalence_p(estimate, margin) < 0.05) == (reach < margin)


@pytest.mark.parametrize(("error", "margin"), [(0.0, 1.0), (1.0, 0.0)])
def test_nothing_to_test_with_is_no_equivalence(error: float, margin: float):
    with pytest.raises(ValueError, match="standard error"):
        equivalence_p(Estimate(difference=0.0, standard_error=error, degrees_of_freedom=2), margin)
