"""The spread of a pilot."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mlm_lab.statistics.blocks import fit_blocks
from mlm_lab.statistics.pilot import pilot

SCORES = {"a": {0: 1.0, 1: 3.0, 2: 7.1}, "b": {0: 1.2, 1: 3.1, 2: 7.0}}


def test_the_spread_is_about_arm_and_seed():
    found = pilot(SCORES)
    assert (found.std, found.degrees_of_freedom, found.paired) == (fit_blocks(SCORES, "a").std, 2, True)


def test_the_upper_limit_holds_four_times_in_five():
    draws = np.random.default_rng(0).normal(size=(4000, 4))
    held = [pilot({"a": dict(enumerate(row.tolist()))}).std_high >= 1 for row in draws]
    low, high = stats.binomtest(sum(held), len(held)).proportion_ci(0.9999)
    assert low <= 0.8 <= high


def test_one_arm_cannot_take_the_seeds_out():
    found = pilot({"a": SCORES["a"], "b": {}})
    assert (found.std, found.degrees_of_freedom, found.paired) == (pytest.approx(np.std([1, 3, 7.1], ddof=1)), 2, False)


def test_arms_without_a_common_seed_are_not_paired():
    found = pilot({"a": {0: 1.0, 1: 3.0}, "b": {2: 11.0, 3: 13.0}})
    assert (found.std, found.degrees_of_freedom, found.paired) == (pytest.approx(2**0.5), 2, False)


@pytest.mark.parametrize("scores", [{}, {"a": {}}, {"a": {0: 1.0}}, {"a": {0: 1.0}, "b": {0: 2.0}}, {"a": {0: 0.5, 1: 0.5}}])
def test_nothing_repeated_or_nothing_varying_is_no_pilot(scores: dict):
    assert pilot(scores) is None


def test_an_undefined_score_is_named():
    with pytest.raises(ValueError, match="undefined score: a with seed 1"):
        pilot({"a": {0: 1.0, 1: None}})
