"""Page's trend test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mlm_lab.statistics.scores import Scores
from mlm_lab.statistics.trend import smallest_trend_p, trend


def scores_of(table: list[list[float]]) -> Scores:
    """Rows are seeds."""
    return {f"arm {place}": {seed: row[place] for seed, row in enumerate(table)} for place in range(len(table[0]))}


def test_scipys_page_test_twice_the_smaller_side():
    table = np.random.default_rng(1).normal(size=(5, 4)) + 0.6 * np.arange(4)
    up, down = stats.page_trend_test(table), stats.page_trend_test(table[:, ::-1])
    rising, falling = trend(scores_of(table.tolist())), trend(scores_of((-table).tolist()))
    assert rising.p == falling.p == pytest.approx(min(1, 2 * min(up.pvalue, down.pvalue)))
    assert (rising.direction, falling.direction, rising.statistic) == ("rising", "falling", up.statistic)
    assert rising.exact


def test_three_seeds_can_show_a_trend_where_they_cannot_show_a_pair():
    found = trend(scores_of([[1, 2, 3, 4, 5]] * 3))
    assert found.p == found.smallest_p == smallest_trend_p(3, 5) == pytest.approx(2 / 120**3)


def test_what_a_seed_does_to_all_arms_does_not_count():
    table = np.random.default_rng(2).normal(size=(4, 3))
    assert trend(scores_of(table.tolist())) == trend(scores_of((table + 100 * np.arange(4)[:, None]).tolist()))


def test_up_and_down_is_no_trend():
    found = trend(scores_of([[1, 2, 3], [3, 2, 1]]))
    assert (found.direction, found.p) == ("none", 1)


def test_ties_are_said_to_make_it_approximate():
    assert not trend(scores_of([[1, 1, 3], [1, 2, 3]])).exact


def test_a_seed_that_one_arm_lacks_is_left_out_whole():
    scores = {"a": {0: 1.0, 1: 1.0, 2: 9.0}, "b": {0: 2.0, 1: 2.0}, "c": {0: 3.0, 1: 3.0, 2: 0.0}}
    assert (trend(scores).n, trend(scores).direction) == (2, "rising")


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ({}, "0 arms and 0 seeds"),
        ({"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0, 1: 2.0}}, "2 arms and 2 seeds"),
        ({"a": {0: 1.0}, "b": {0: 1.0}, "c": {0: 3.0}}, "3 arms and 1 seed that have"),
        ({"a": {0: 1.0, 1: None}, "b": {0: 1.0, 1: 2.0}, "c": {0: 3.0, 1: 1.0}}, "undefined score: a with seed 1"),
    ],
)
def test_where_there_is_no_test_the_reason_is_said(scores: Scores, reason: str):
    found = trend(scores)
    assert found.p is None and found.direction == "none" and reason in found.reason
