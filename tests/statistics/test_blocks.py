"""Randomised blocks against scipy's paired t test and statsmodels' least squares."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mlm_lab.statistics.blocks import fit_blocks

Table = dict[str, dict[int, float]]


def table(arms: int, seeds: int, seed: int, missing: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    blocks = rng.normal(0, 5, seeds)
    scores = {f"arm {a}": {s: float(blocks[s] + a + rng.normal()) for s in range(seeds)} for a in range(arms)}
    for cell in rng.choice(arms * seeds, missing, replace=False):
        del scores[f"arm {cell // seeds}"][int(cell) % seeds]
    return scores


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(0, 1000))
def test_two_arms_are_the_paired_t_test(seeds: int, seed: int):
    scores = table(2, seeds, seed)
    ours, theirs = (list(scores[arm].values()) for arm in ("arm 1", "arm 0"))
    found, paired = fit_blocks(scores, "arm 0").estimates["arm 1"], stats.ttest_rel(ours, theirs)
    assert found.difference / found.standard_error == pytest.approx(paired.statistic)
    assert (found.degrees_of_freedom, found.difference) == (paired.df, pytest.approx(np.mean(ours) - np.mean(theirs)))


@pytest.mark.parametrize(("arms", "seeds", "missing"), [(3, 3, 0), (5, 3, 2), (4, 6, 5), (6, 10, 9)])
def test_least_squares_as_statsmodels_has_it(arms: int, seeds: int, missing: int):
    api = pytest.importorskip("statsmodels.api")
    scores = table(arms, seeds, seed=seeds, missing=missing)
    cells = [(arm, seed, value) for arm, of_arm in scores.items() for seed, value in of_arm.items()]
    of_arms = [[arm == f"arm {place}" for arm, _, _ in cells] for place in range(1, arms)]
    of_seeds = [[seed == place for _, seed, _ in cells] for place in range(seeds)]
    fitted = api.OLS([value for _, _, value in cells], np.array([*of_arms, *of_seeds], dtype=float).T).fit()
    ours = fit_blocks(scores, "arm 0")
    assert ours.degrees_of_freedom == fitted.df_resid
    assert ours.std**2 == pytest.approx(fitted.mse_resid)
    for place in range(1, arms):
        found = ours.estimates[f"arm {place}"]
        assert (found.difference, found.standard_error) == (pytest.approx(fitted.params[place - 1]), pytest.approx(fitted.bse[place - 1]))
    covariance = fitted.cov_params()[: arms - 1, : arms - 1]
    deviations = np.sqrt(np.diag(covariance))
    correlations = (covariance / np.outer(deviations, deviations))[~np.eye(arms - 1, dtype=bool)]
    assert ours.correlation == pytest.approx(correlations.min())
    assert missing or ours.correlation == pytest.approx(0.5)


def test_what_a_seed_does_to_all_arms_does_not_count():
    scores = table(4, 3, seed=1)
    moved = {arm: {seed: value + 100 * seed for seed, value in of_arm.items()} for arm, of_arm in scores.items()}
    assert fit_blocks(moved, "arm 0").std == pytest.approx(fit_blocks(scores, "arm 0").std)


def test_a_seed_that_one_arm_alone_has_tells_no_difference():
    scores = table(3, 4, seed=2)
    alone = {**scores, "arm 1": {**scores["arm 1"], 99: 1e6}}
    before, after = fit_blocks(scores, "arm 0"), fit_blocks(alone, "arm 0")
    assert after.degrees_of_freedom == before.degrees_of_freedom
    assert after.estimates["arm 1"].difference == pytest.approx(before.estimates["arm 1"].difference)
    assert after.gain is None  # not all cells are there


def test_an_arm_with_no_seed_in_common_is_not_estimated_by_way_of_nothing():
    scores = {"a": {0: 1.0, 1: 2.0}, "b": {0: 1.5, 1: 2.1}, "c": {7: 3.0, 8: 4.0}, "d": {7: 3.5, 8: 4.1}}
    assert set(fit_blocks(scores, "a").estimates) == {"b"}
    chained = {**scores, "b": {**scores["b"], 7: 3.3}}
    assert set(fit_blocks(chained, "a").estimates) == {"b", "c", "d"}


def test_equal_residuals_are_no_spread_although_floats_differ():
    scores = {"a": {0: 0.1, 1: 0.2, 2: 0.7}, "b": {0: 0.1 + 0.2, 1: 0.2 + 0.2, 2: 0.7 + 0.2}}
    assert fit_blocks(scores, "a").std == 0
    assert math.isnan(fit_blocks({"a": {0: 1.0}, "b": {0: 2.0}}, "a").std)


def test_the_gain_is_fishers_relative_efficiency():
    """Cochran and Cox, Experimental Designs, 4.37: ((b - 1) E_b + b (t - 1) E_e) / ((b t - 1) E_e)."""
    scores = {"a": {0: 1.0, 1: 5.0, 2: 9.2}, "b": {0: 2.1, 1: 6.0, 2: 9.9}}
    fit, values = fit_blocks(scores, "a"), np.array([list(of_arm.values()) for of_arm in scores.values()])
    between = 2 * values.mean(axis=0).var(ddof=1)
    assert fit.gain == pytest.approx((2 * between + 3 * fit.std**2) / (5 * fit.std**2))
    assert fit.gain > 100
