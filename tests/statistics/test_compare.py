"""Arms against the baseline, put together: what each case says."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from mlm_lab.statistics.compare import Comparison, Contrast, compare
from mlm_lab.statistics.dunnett import simultaneous_critical
from mlm_lab.statistics.multiplicity import holm
from mlm_lab.statistics.power import detectable_difference
from mlm_lab.statistics.proportions import proportion

WORDS = re.compile(
    r"better|worse|equivalent within \S+|not resolved: \d+ seeds could have shown a difference of [\d.e+-]+|not compared: .+"
)
SCORE = st.none() | st.just(math.nan) | st.sampled_from([0.0, 0.25, 0.5]) | st.floats(-1e6, 1e6)
TABLES = st.dictionaries(st.sampled_from("abcdef"), st.dictionaries(st.integers(0, 5), SCORE, max_size=6), max_size=5)


def scores(effects: dict[str, float], seeds: int, *, spread: float = 0.1, seed: int = 0) -> dict[str, dict[int, float]]:
    rng = np.random.default_rng(seed)
    blocks = rng.normal(size=seeds)
    return {arm: {s: float(blocks[s] + effect + spread * rng.normal()) for s in range(seeds)} for arm, effect in effects.items()}


def of(comparison: Comparison, arm: str) -> Contrast:
    return next(contrast for contrast in comparison.contrasts if contrast.arm == arm)


FOUR = {"base": 0.0, "up": 1.0, "same": 0.0, "down": -1.0}


def test_the_words_of_a_clear_case():
    found = compare(scores(FOUR, 3), baseline="base", primary="up")
    assert [(c.arm, c.primary, c.n) for c in found.contrasts] == [("up", True, 3), ("same", False, 3), ("down", False, 3)]
    same = of(found, "same")
    assert [of(found, arm).verdict for arm in ("up", "down")] == ["better", "worse"]
    assert same.verdict == f"not resolved: 3 seeds could have shown a difference of {same.detectable:.2g}"
    assert of(compare(scores(FOUR, 3), baseline="base", higher_is_better=False), "up").verdict == "worse"


def test_equivalence_asks_for_a_margin_and_for_evidence():
    assert of(compare(scores(FOUR, 3), baseline="base", margin=0.5), "same").verdict == "equivalent within 0.5"
    assert of(compare(scores(FOUR, 3), baseline="base", margin=0.01), "same").verdict.startswith("not resolved")
    assert of(compare(scores(FOUR, 3), baseline="base", margin=5.0), "up").verdict == "equivalent within 5"  # told apart, and no matter


def test_the_primary_contrast_is_not_corrected_and_the_others_are_holms():
    table = scores({"base": 0.0, "a": 0.2, "b": 0.3, "c": 0.25}, 5, spread=0.2)
    found = compare(table, baseline="base", primary="b", margin=0.3)
    assert of(found, "b").p_adjusted == of(found, "b").p
    others = [of(found, arm) for arm in ("a", "c")]
    assert [c.p_adjusted for c in others] == pytest.approx(holm([c.p for c in others]))
    every = compare(table, baseline="base", margin=0.3)
    assert [c.p_adjusted for c in every.contrasts] == pytest.approx(holm([c.p for c in found.contrasts]))
    assert of(every, "b").equivalence_p > of(found, "b").equivalence_p


def test_intervals_are_students_and_dunnetts_about_the_mean_difference():
    table = scores(FOUR, 5)
    found = compare(table, baseline="base")
    for contrast in found.contrasts:
        error = found.pool.std * math.sqrt(2 / 5)
        assert contrast.difference == pytest.approx(found.arms[contrast.arm].mean - found.arms["base"].mean)
        assert contrast.high - contrast.difference == pytest.approx(stats.t.isf(0.025, 12) * error)
        assert contrast.difference - contrast.simultaneous_low == pytest.approx(simultaneous_critical(3, 12, 0.05) * error, rel=1e-6)
    assert found.pool.arms == tuple(FOUR) and found.pool.degrees_of_freedom == 12 and found.pool.pairing_gain > 10


def test_what_could_have_been_shown_is_the_power_figure():
    found = compare(scores(FOUR, 5), baseline="base", primary="same")
    assert of(found, "same").detectable == pytest.approx(detectable_difference(found.pool.std, 5, 4))
    assert of(found, "up").detectable == pytest.approx(detectable_difference(found.pool.std, 5, 4, comparisons=2))


def test_trap_34_a_permutation_p_only_where_it_can_reach_the_level():
    few, enough = compare(scores(FOUR, 5), baseline="base"), compare(scores(FOUR, 6), baseline="base")
    assert (of(few, "up").p_permutation, of(few, "up").smallest_p) == (None, 0.0625)
    assert of(enough, "up").p_permutation == of(enough, "up").smallest_p == 0.03125
    assert of(compare(scores(FOUR, 5), baseline="base", level=0.9), "up").p_permutation == 0.0625


def test_each_pairs_own_test_and_spread_stand_beside():
    table = scores(FOUR, 5)
    table["down"] = {seed: 4 * value for seed, value in table["down"].items()}
    found = compare(table, baseline="base")
    differences = [table["down"][seed] - table["base"][seed] for seed in range(5)]
    own = stats.ttest_1samp(differences, 0)
    assert of(found, "down").p_own == pytest.approx(own.pvalue)
    assert (of(found, "down").low_own, of(found, "down").high_own) == pytest.approx(tuple(own.confidence_interval(0.95)))
    others = compare({arm: table[arm] for arm in FOUR if arm not in ("base", "down")}, baseline="up").pool
    ratio = statistics.variance(differences) / 2 / others.std**2
    assert of(found, "down").spread_ratio == pytest.approx(math.sqrt(ratio))
    assert of(found, "down").spread_p == pytest.approx(stats.f.sf(ratio, 4, others.degrees_of_freedom))
    assert of(found, "down").spread_p < 0.05 < of(found, "up").spread_p
    excluded = compare(table, baseline="base", excluded_from_pool={"down": "collapsed"})
    assert of(excluded, "down").p_own == of(excluded, "down").p and of(excluded, "down").spread_ratio is None


@pytest.mark.parametrize("effects", [{"base": 0.0, "up": 1.0}, {"base": 0.0, "up": 1.0, "down": -1.0}])
def test_two_or_three_arms_have_no_others_to_be_unlike(effects: dict[str, float]):
    found = compare(scores(effects, 5), baseline="base")
    assert (of(found, "up").spread_ratio, of(found, "up").spread_p) == (None, None)


def test_one_arm_that_varies_among_few_seeds_is_told():
    """Three seeds, five arms: the pool says better, and the pair's own test does not."""
    quiet = {"base": (0.850, 0.851, 0.849), "a": (0.851, 0.852, 0.850), "b": (0.849, 0.850, 0.849), "c": (0.850, 0.852, 0.849)}
    table = {arm: dict(zip((10, 11, 12), values, strict=True)) for arm, values in {**quiet, "x": (0.870, 0.856, 0.850)}.items()}
    found = of(compare(table, baseline="base", primary="x"), "x")
    assert found.verdict == "better" and found.p_own > 0.2 and found.spread_p < 0.01 and found.spread_ratio > 5


def test_how_much_the_pairing_gained():
    up = of(compare(scores(FOUR, 5), baseline="base"), "up")
    assert up.paired_correlation > 0.9 and up.pairing_gain > 10


def test_a_trend_is_over_the_arms_as_listed():
    table = scores({"0.15": 0.0, "0.4": 1.0, "0.8": 2.0}, 3)
    found = compare(table, baseline="0.4", ordered=True).trend
    assert (found.direction, found.n, found.p) == ("rising", 3, pytest.approx(2 / 6**3))
    assert compare(table, baseline="0.4").trend is None
    assert compare({**table, "none yet": {}}, baseline="0.4", ordered=True).trend == found


STUCK = {"up": {0: True, 1: False, 2: True}, "same": {0: True, 1: True, 2: True}}


def test_an_arm_on_the_plateau_is_an_endpoint_and_never_better():
    found = compare(scores(FOUR, 3), baseline="base", margin=9.0, left_plateau=STUCK)
    up = of(found, "up")
    assert found.escaped == {"up": proportion(2, 3), "same": proportion(3, 3)}
    assert up.excluded == found.excluded["up"] == "1 of 3 runs did not leave the plateau"
    assert up.verdict == "not compared: 1 of 3 runs did not leave the plateau"
    assert of(compare(scores(FOUR, 3), baseline="base", left_plateau={"down": {0: False}}), "down").verdict == "worse"


def test_its_variance_stays_out_of_the_pool_and_its_runs_in_the_table():
    table = scores(FOUR, 3)
    table["up"][1] -= 7
    found, without = (compare(t, baseline="base", left_plateau=STUCK) for t in (table, {a: s for a, s in table.items() if a != "up"}))
    assert found.pool == without.pool
    assert found.arms["up"].mean == pytest.approx(statistics.fmean(table["up"].values()))
    assert of(found, "same").standard_error == of(without, "same").standard_error
    own = stats.ttest_rel(list(table["up"].values()), list(table["base"].values()))
    assert (of(found, "up").p, of(found, "up").degrees_of_freedom, of(found, "up").pooled) == (pytest.approx(own.pvalue), 2, False)


def test_collapsed_runs_likewise_and_both_reasons_are_told():
    found = compare(scores(FOUR, 3), baseline="base", left_plateau=STUCK, excluded_from_pool={"up": "2 of 3 runs collapsed"})
    assert found.excluded == {"up": "1 of 3 runs did not leave the plateau, 2 of 3 runs collapsed"}
    assert found.pool.arms == ("base", "same", "down")


def test_a_baseline_on_the_plateau_is_not_the_better_one_and_shares_its_spread_with_none():
    found = compare(scores(FOUR, 3), baseline="base", margin=9.0, left_plateau={"base": {0: False, 1: True, 2: True}})
    assert of(found, "down").verdict == "not compared: the baseline: 1 of 3 runs did not leave the plateau"
    collapsed = compare(scores(FOUR, 3), baseline="base", excluded_from_pool={"base": "2 of 3 runs collapsed"})
    assert of(collapsed, "up").verdict == "better"
    assert of(collapsed, "down").verdict == "not compared: the baseline: 2 of 3 runs collapsed"
    assert found.pool is None and not any(contrast.pooled for contrast in found.contrasts)


def test_where_a_spread_is_not_shared_the_error_rate_still_is():
    found = compare(scores(FOUR, 5), baseline="base", left_plateau=STUCK)
    up, down = of(found, "up"), of(found, "down")
    assert up.simultaneous_high - up.difference == pytest.approx(stats.t.isf(0.025 / 3, 4) * up.standard_error)
    dunnett = simultaneous_critical(2, 8, 0.05 * 2 / 3)
    assert down.simultaneous_high - down.difference == pytest.approx(dunnett * down.standard_error, rel=1e-6)


def test_a_seed_that_one_arm_lacks():
    table = scores(FOUR, 3)
    del table["up"][2]
    found = compare(table, baseline="base")
    assert (of(found, "up").n, of(found, "same").n, found.pool.degrees_of_freedom) == (2, 3, 5)
    assert of(found, "up").standard_error > of(found, "same").standard_error
    assert of(found, "up").verdict == "better"


BASE = {0: 0.1, 1: 0.3, 2: 0.2}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"base": BASE, "arm": {}}, "the arm has no scores"),
        ({"arm": BASE}, "the baseline has no scores"),
        ({"base": {}, "arm": BASE}, "the baseline has no scores"),
        ({"base": BASE, "arm": {0: 0.5, 1: None, 2: 0.4}}, "the arm has no defined score with seed 1"),
        ({"base": {0: 0.5, 1: math.nan, 2: math.inf}, "arm": BASE}, "the baseline has no defined score with seed 1, 2"),
        ({"base": {0: 0.5}, "arm": {0: 0.6}}, "1 common seed"),
        ({"base": {0: 0.5, 1: 0.4}, "arm": {2: 0.6, 3: 0.7}}, "0 common seeds"),
        ({"base": {0: 0.684, 1: 0.684}, "arm": {0: 0.684, 1: 0.684}}, "the scores do not vary over seeds"),
        ({"base": BASE, "arm": {seed: value + 0.2 for seed, value in BASE.items()}}, "the scores do not vary over seeds"),
    ],
)
def test_each_case_without_a_test_says_why(table: dict, words: str):
    (contrast,) = compare(table, baseline="base", margin=0.1).contrasts
    assert contrast.verdict == f"not compared: {words}"
    assert (contrast.p, contrast.low, contrast.detectable, contrast.equivalence_p) == (None, None, None, None)


def test_trap_33_an_arm_with_an_undefined_score_stays_out_of_the_pool_and_the_others_are_compared():
    table = scores(FOUR, 3)
    table["same"][1] = None
    found = compare(table, baseline="base")
    assert found.excluded == {"same": "no defined score with seed 1"} and found.pool.arms == ("base", "up", "down")
    assert [c.verdict for c in found.contrasts] == ["better", "not compared: the arm has no defined score with seed 1", "worse"]


def test_one_seed_shows_the_difference_and_nothing_else():
    (contrast,) = compare({"base": {0: 0.5}, "arm": {0: 0.75}}, baseline="base").contrasts
    assert (contrast.difference, contrast.n, contrast.smallest_p) == (0.25, 1, 1)
    assert compare({"base": {0: 0.5}, "arm": {0: 0.75}}, baseline="base").pool is None


def test_one_run_of_an_arm_is_not_compared_by_the_others_spread():
    table = scores(FOUR, 3)
    table["up"] = {0: table["up"][0]}
    assert of(compare(table, baseline="base"), "up").verdict == "not compared: 1 common seed"


def test_pilot_seeds_that_chose_do_not_test():
    found = compare(scores(FOUR, 6), baseline="base", pilot_seeds=[0, 1])
    assert found == compare({arm: {s: v for s, v in of_arm.items() if s > 1} for arm, of_arm in scores(FOUR, 6).items()}, baseline="base")


def test_the_states_of_pilot_seeds_exclude_no_arm():
    found = compare(scores(FOUR, 5), baseline="base", left_plateau={"up": {0: False, 1: True, 2: True}}, pilot_seeds=[0])
    assert not found.excluded and found.escaped == {"up": proportion(2, 2)} and of(found, "up").verdict == "better"


def test_a_primary_arm_without_runs_has_its_row():
    found = compare(scores(FOUR, 3), baseline="base", primary="missing")
    assert of(found, "missing").primary and of(found, "missing").verdict == "not compared: the arm has no scores"


@pytest.mark.parametrize("wrong", [{"margin": 0.0}, {"margin": math.nan}, {"primary": "base"}])
def test_a_question_that_is_none_is_refused(wrong: dict):
    with pytest.raises(ValueError, match="baseline base"):
        compare(scores(FOUR, 3), baseline="base", **wrong)


@settings(deadline=None, max_examples=150)
@given(TABLES, st.booleans(), st.sampled_from([None, 0.1]), st.sampled_from([None, "b"]), st.sampled_from([None, {"c": "collapsed"}]))
def test_whatever_is_missing_or_undefined_every_arm_has_its_words(table, ordered, margin, primary, excluded):
    found = compare(table, baseline="a", ordered=ordered, margin=margin, primary=primary, excluded_from_pool=excluded)
    assert [c.arm for c in found.contrasts] == [arm for arm in dict.fromkeys([*table, *([primary] if primary else [])]) if arm != "a"]
    for contrast in found.contrasts:
        assert WORDS.fullmatch(contrast.verdict)
        assert excluded is None or contrast.arm != "c" or contrast.verdict != "better"
        numbers = [value for value in dataclasses.asdict(contrast).values() if isinstance(value, float)]
        assert all(map(math.isfinite, numbers))
        if contrast.p is not None:
            assert 0 <= contrast.p <= contrast.p_adjusted <= 1 and contrast.simultaneous_low <= contrast.low <= contrast.high


@settings(deadline=None)
@given(st.integers(0, 500), st.floats(0.01, 100), st.floats(-50, 50), st.integers(2, 6))
def test_the_words_do_not_depend_on_unit_origin_or_the_order_of_seeds(seed: int, unit: float, origin: float, seeds: int):
    table = scores({"base": 0.0, "a": 0.1, "b": 0.3}, seeds, seed=seed)
    moved = {arm: {s: unit * of_arm[s] + origin + s for s in reversed(of_arm)} for arm, of_arm in table.items()}
    before, after = compare(table, baseline="base", margin=0.2), compare(moved, baseline="base", margin=0.2 * unit)
    for ours, theirs in zip(before.contrasts, after.contrasts, strict=True):
        assume(min(abs(p - 0.05) for p in (ours.p_adjusted, ours.equivalence_p)) > 1e-6)
        assert ours.verdict.split(" ")[0] == theirs.verdict.split(" ")[0]
        assert theirs.difference == pytest.approx(unit * ours.difference, rel=1e-6, abs=1e-6 * unit)
        assert theirs.p == pytest.approx(ours.p, rel=1e-5)
