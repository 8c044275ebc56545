"""Coverage and error rates are as stated, by simulation: studies of 3, 5 and 10 seeds through `compare` itself.

A share counted over N studies is held against the stated one by its own exact interval at 99.99 %, so that a right implementation fails one
check in ten thousand and a wrong one is caught where it is off by more than that interval's width (0.013 at .95 and 4000 studies).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from mlm_lab.statistics.compare import Comparison, compare
from mlm_lab.statistics.description import describe
from mlm_lab.statistics.permutation import sign_flip_p
from mlm_lab.statistics.power import detectable_difference
from mlm_lab.statistics.proportions import proportion
from mlm_lab.statistics.resampling import mean, resample_seeds_and_examples
from mlm_lab.statistics.trend import trend

ARMS = ("base", "first", "second", "third", "fourth")
SEEDS = (3, 5, 10)
WIDTH = 0.9999


class Study:
    """One simulated study: what a seed does to all arms has three times the deviation of a run."""

    def __init__(self, rng: np.random.Generator, seeds: int, effects: Mapping[str, float], spread: Mapping[str, float], missing: int):
        blocks, runs = rng.normal(0, 3, seeds), rng.normal(size=(len(ARMS), seeds))
        self.scores = {
            arm: {seed: float(effects.get(arm, 0.0) + blocks[seed] + spread.get(arm, 1.0) * runs[place, seed]) for seed in range(seeds)}
            for place, arm in enumerate(ARMS)
        }
        for cell in rng.choice(len(ARMS) * seeds, missing, replace=False):
            del self.scores[ARMS[cell // seeds]][int(cell) % seeds]


def tally(
    seeds: int,
    studies: int,
    *,
    effects: Mapping[str, float] | None = None,
    spread: Mapping[str, float] | None = None,
    missing: int = 0,
    **asked,
) -> Counter:
    """What came of the studies. `first` is the primary contrast. Effects and spreads by arm: else 0 and 1."""
    rng = np.random.default_rng([seeds, studies, missing])
    effects, found = effects or {}, Counter()
    for _ in range(studies):
        study = Study(rng, seeds, effects, spread or {}, missing)
        found += outcomes(compare(study.scores, baseline="base", primary="first", **asked), effects)
    return found


def outcomes(comparison: Comparison, effects: Mapping[str, float]) -> Counter:
    tested = [contrast for contrast in comparison.contrasts if contrast.p is not None]
    primary, others = [c for c in tested if c.primary], [c for c in tested if not c.primary]
    truth = {contrast.arm: effects.get(contrast.arm, 0.0) for contrast in tested}
    return Counter(
        studies=1,
        covered=sum(c.low <= truth[c.arm] <= c.high for c in primary),
        all_covered=all(c.simultaneous_low <= truth[c.arm] <= c.simultaneous_high for c in tested),
        apart_by_its_own=sum(c.p_own < 0.05 for c in primary),
        unlike=sum(c.spread_p < 0.05 for c in primary),
        told_apart=sum(c.verdict in ("better", "worse") for c in primary),
        another_told_apart=any(c.verdict in ("better", "worse") for c in others),
        equivalent=sum(c.verdict.startswith("equivalent") for c in primary),
        better=any(c.verdict == "better" for c in tested if c.excluded),
    )


def is_as_stated(count: int, studies: int, stated: float) -> bool:
    bounds = proportion(count, studies, WIDTH)
    return bounds.low <= stated <= bounds.high


def is_at_most(count: int, studies: int, stated: float) -> bool:
    return proportion(count, studies, WIDTH).low <= stated


def check_no_difference(found: Counter) -> None:
    studies = found["studies"]
    assert is_as_stated(found["covered"], studies, 0.95)
    assert is_as_stated(found["told_apart"], studies, 0.05)
    assert is_at_most(found["another_told_apart"], studies, 0.05)
    assert found["another_told_apart"] > 0.02 * studies  # Holm's three share what one would have, they do not forgo it


def test_in_short_where_nothing_differs():
    found = tally(3, 400)
    check_no_difference(found)
    assert is_as_stated(found["all_covered"], 400, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS)
def test_where_nothing_differs(seeds: int):
    found = tally(seeds, 4000)
    check_no_difference(found)
    assert is_as_stated(found["all_covered"], 4000, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS)
def test_with_missing_cells_the_intervals_hold_as_stated(seeds: int):
    """Two of the cells; the arms at once at least as stated, for the least correlation stands for all."""
    found = tally(seeds, 2000, effects={"second": 2.0}, missing=2)
    pairs = found["covered"], found["studies"]
    assert is_at_most(found["studies"] - found["all_covered"], found["studies"], 0.05)
    assert seeds == 3 or is_as_stated(*pairs, 0.95)  # of three seeds, two missing may leave the primary contrast without a pair


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS)
def test_what_is_equivalent_by_mistake(seeds: int):
    """The true difference is the margin itself, the worst case."""
    found = tally(seeds, 2000, effects={"first": 8.0}, margin=8.0)
    assert is_as_stated(found["equivalent"], 2000, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS)
def test_the_detectable_difference_is_shown_four_times_in_five(seeds: int):
    found = tally(seeds, 2000, effects={"first": detectable_difference(1.0, seeds, len(ARMS))})
    assert is_as_stated(found["told_apart"], 2000, 0.8)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS)
def test_an_arm_of_another_spread_out_of_the_pool_harms_no_other(seeds: int):
    excluded = {"fourth": "1 of 3 runs did not leave the plateau"}
    found = tally(seeds, 2000, effects={"fourth": 3.0}, spread={"fourth": 6.0}, excluded_from_pool=excluded)
    assert is_as_stated(found["covered"], 2000, 0.95)
    assert is_at_most(2000 - found["all_covered"], 2000, 0.05)
    assert found["better"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("arm", ["base", "first"])
def test_unequal_spreads_in_the_pool_are_its_limit_and_the_pairs_own_test_holds(arm: str, seeds: int):
    found = tally(seeds, 2000, spread={arm: 3.0})
    assert is_as_stated(found["told_apart"], 2000, 0.16)
    assert is_as_stated(found["apart_by_its_own"], 2000, 0.05)
    assert found["unlike"] / 2000 > {3: 0.3, 5: 0.5, 10: 0.8}[seeds]


@pytest.mark.parametrize("seeds", SEEDS)
def test_spreads_that_are_alike_are_called_unlike_at_the_level(seeds: int):
    assert is_as_stated(tally(seeds, 1000)["unlike"], 1000, 0.05)


@pytest.mark.parametrize("seeds", SEEDS)
def test_the_interval_of_a_cell(seeds: int):
    table = np.random.default_rng(seeds).normal(1, 3, (4000, seeds))
    cells = [describe(row) for row in table.tolist()]
    assert is_as_stated(sum(cell.low <= 1 <= cell.high for cell in cells), len(cells), 0.95)


@pytest.mark.parametrize("seeds", [6, 10])
def test_the_permutation_test(seeds: int):
    table = np.random.default_rng(seeds).standard_t(2, (4000, seeds))  # heavy tails, for which the t test is not made
    level = 2 * int(0.025 * 2**seeds) / 2**seeds  # the level that it can reach: .03125 with 6 seeds
    assert is_as_stated(sum(sign_flip_p(row) <= level for row in table.tolist()), len(table), level)


def trend_errors(seeds: int, studies: int) -> int:
    rng = np.random.default_rng(seeds)
    return sum(trend(Study(rng, seeds, {}, {}, 0).scores).p < 0.05 for _ in range(studies))


def test_in_short_the_trend_test():
    assert is_at_most(trend_errors(3, 200), 200, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS)
def test_the_trend_test(seeds: int):
    assert is_as_stated(trend_errors(seeds, 1500), 1500, 0.05)


def resampled(rng: np.random.Generator, seeds: int, examples: int, of_seed: float) -> bool:
    """Whether the interval holds the true difference, 0: examples that are hard for one arm, seeds that suit one arm."""
    easy, hard = rng.normal(0, 0.15, (2, examples)), rng.normal(0, of_seed, (2, seeds, 1))
    arms: list[dict[int, np.ndarray]] = []
    for place in range(2):
        right = rng.random((seeds, examples)) < np.clip(0.6 + easy[place] + hard[place], 0, 1)
        arms.append({seed: np.stack([right[seed], np.ones(examples)], axis=1) for seed in range(seeds)})
    found = resample_seeds_and_examples(*arms, mean, rng, draws=250)
    return found.low <= 0 <= found.high


@pytest.mark.slow
@pytest.mark.parametrize("of_seed", [0.01, 0.05])
def test_seeds_and_examples_cover_as_stated(of_seed: float):
    rng = np.random.default_rng(0)
    held = [resampled(rng, 10, 300, of_seed) for _ in range(1500)]
    assert is_as_stated(sum(held), len(held), 0.95)
