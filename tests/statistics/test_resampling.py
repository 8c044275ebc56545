"""Seeds x examples, from 10 seeds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from mlm_lab.statistics.resampling import f1, matthews, mean, pearson, resample_seeds_and_examples


def answers(seeds: int, examples: int, effect: float, seed: int = 0, spread: float = 0.05) -> tuple[dict, dict]:
    """Right or wrong, for two arms that share seeds and examples."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(0, 0.2, examples)
    arms = []
    for shift in (effect, 0.0):
        chance = 0.6 + shift + hard + rng.normal(0, spread, (seeds, 1))
        right = rng.random((seeds, examples)) < chance
        arms.append({s: np.stack([right[s], np.ones(examples)], axis=1) for s in range(seeds)})
    return arms[0], arms[1]


def test_the_difference_is_that_of_the_seeds_means_and_the_draws_are_keyed():
    ours, theirs = answers(10, 200, 0.1)
    first, again = (resample_seeds_and_examples(ours, theirs, mean, np.random.default_rng(1), draws=200) for _ in range(2))
    expected = np.mean([ours[s][:, 0].mean() - theirs[s][:, 0].mean() for s in range(10)])
    assert first == again
    assert first.difference == pytest.approx(expected)
    assert (first.seeds, first.examples, first.draws) == (10, 200, 200)
    assert first.low < first.difference < first.high


def test_without_examples_to_draw_it_is_the_t_interval_over_seeds():
    """Every example answers alike, so that only seeds vary."""
    by_seed = np.random.default_rng(2).normal(size=12)
    ours, theirs = ({s: np.tile([sign * by_seed[s] / 2, 1.0], (5, 1)) for s in range(12)} for sign in (1, -1))
    found = resample_seeds_and_examples(ours, theirs, mean, np.random.default_rng(3), draws=50)
    low, high = stats.t.interval(0.95, 11, loc=by_seed.mean(), scale=stats.sem(by_seed))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.seed_share == pytest.approx(1)


def test_where_seeds_agree_it_is_the_interval_over_examples():
    rng = np.random.default_rng(4)
    differences = rng.normal(0.3, 1, 400)
    ours = {s: np.stack([differences, np.ones(400)], axis=1) for s in range(10)}
    theirs = {s: np.stack([np.zeros(400), np.ones(400)], axis=1) for s in range(10)}
    found = resample_seeds_and_examples(ours, theirs, mean, rng, draws=5000)
    assert found.standard_error == pytest.approx(stats.sem(differences, ddof=0), rel=0.05)
    assert found.seed_share == pytest.approx(0, abs=1e-9)


def test_what_a_seed_makes_of_an_example_counts_once():
    """Answers that are noise alone: the variance is that of their mean, not three times it."""
    noise = np.random.default_rng(5).normal(size=(10, 400))
    ours, theirs = ({s: np.stack([sign * noise[s] / 2, np.ones(400)], axis=1) for s in range(10)} for sign in (1, -1))
    found = resample_seeds_and_examples(ours, theirs, mean, np.random.default_rng(6), draws=5000)
    assert 0.9 < found.standard_error / 4000**-0.5 < 1.3


def test_where_nothing_varies_the_interval_has_no_width():
    same = {s: np.ones((20, 2)) for s in range(10)}
    found = resample_seeds_and_examples(same, same, mean, np.random.default_rng(0), draws=20)
    assert (found.difference, found.low, found.high, found.standard_error, found.seed_share) == (0, 0, 0, 0, 0)


def test_more_examples_narrow_it():
    few, many = (resample_seeds_and_examples(*answers(10, n, 0.1), mean, np.random.default_rng(0), draws=300) for n in (50, 5000))
    assert few.standard_error > 1.5 * many.standard_error


def test_only_seeds_that_both_have():
    ours, theirs = answers(11, 50, 0.1)
    del ours[3]
    assert resample_seeds_and_examples(ours, theirs, mean, np.random.default_rng(0), draws=50).seeds == 10


def test_trap_34_no_resampling_of_few_seeds():
    with pytest.raises(ValueError, match="9 common seeds: resampling needs 10"):
        resample_seeds_and_examples(*answers(9, 50, 0.1), mean, np.random.default_rng(0))


def test_other_examples_are_refused():
    ours, theirs = answers(10, 50, 0.1)
    with pytest.raises(ValueError, match="same examples"):
        resample_seeds_and_examples(ours, {**theirs, 4: theirs[4][:-1]}, mean, np.random.default_rng(0))


def test_a_metric_that_is_undefined_with_a_seed_is_said():
    moments = {s: np.tile([1.0, 2.0, 3.0, 4.0, 9.0, 6.0], (50, 1)) for s in range(10)}
    with pytest.raises(ValueError, match="undefined with seed 0"):
        resample_seeds_and_examples(moments, moments, pearson, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("metric", "columns"),
    [
        (f1, lambda g, p: [g * p, (1 - g) * p, g * (1 - p)]),
        (matthews, lambda g, p: [g * p, (1 - g) * p, g * (1 - p), (1 - g) * (1 - p)]),
        (pearson, lambda g, p: [np.ones(len(g)), g, p, g * g, p * p, g * p]),
    ],
)
def test_metrics_are_made_of_sums(metric: Callable, columns: Callable):
    rng = np.random.default_rng(0)
    gold = (rng.random(200) < 0.4).astype(float)
    predicted = np.where(rng.random(200) < 0.8, gold, 1 - gold)
    right = (gold * predicted).sum()
    expected = 2 * right / (gold.sum() + predicted.sum()) if metric is f1 else np.corrcoef(gold, predicted)[0, 1]
    assert metric(np.stack(columns(gold, predicted), axis=1).sum(axis=0)) == pytest.approx(expected)


def test_metrics_of_nothing():
    assert f1(np.zeros(3)) == 0 and matthews(np.array([5.0, 5.0, 0.0, 0.0])) == 0 and np.isnan(pearson(np.ones(6)))
