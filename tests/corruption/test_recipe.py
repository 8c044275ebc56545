"""The parts of the masking recipe beside ratio, mix and unit: schedules, what carries loss, rare words, n-gram lengths, BERT's count
(traps.md 8, 9, 11, 13, 24)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm_lab.corruption.draws import Draws
from mlm_lab.corruption.frequency import FREQUENCY_BINS, count_by_frequency, frequency_bins, frequency_weights
from mlm_lab.corruption.masking import unit_names
from mlm_lab.corruption.recipe import MaskingRecipe
from mlm_lab.corruption.schedules import MASK_SCHEDULES, scheduled_ratios
from mlm_lab.corruption.span_borders import span_borders
from mlm_lab.corruption.units.span import length_distribution
from mlm_lab.errors import InvalidFields
from mlm_lab.types import IGNORE_INDEX
from tests.corruption.stores import VOCABULARY
from tests.corruption.test_masking import BERT, COUNTS, Grid, make_grid, selected

COURSES = ("linear", "cosine", "step")
NESTING = [("token", "skip"), ("word", "stop"), ("word", "cut"), ("span", "stop"), ("span", "cut"), ("collocation", "cut")]


def ratios(schedule: str, position: list[int] | np.ndarray, horizon: int | None, first: float = 0.2, last: float = 0.6) -> np.ndarray:
    numbers = np.asarray(position)
    zeros = np.zeros_like(numbers)
    return scheduled_ratios(schedule, first, last, Draws(0, "train", horizon), numbers, zeros, numbers)


def test_trap_11_courses_follow_the_position() -> None:
    quarters = [0, 25, 50, 75, 100, 130]
    assert np.allclose(ratios("constant", quarters, 100), 0.2)
    assert np.allclose(ratios("linear", quarters, 100), [0.2, 0.3, 0.4, 0.5, 0.6, 0.6])
    middle = 0.4 * (1 - np.sqrt(0.5)) / 2
    assert np.allclose(ratios("cosine", quarters, 100), [0.2, 0.2 + middle, 0.4, 0.6 - middle, 0.6, 0.6])
    assert np.allclose(ratios("step", quarters, 100), [0.2, 0.2, 0.6, 0.6, 0.6, 0.6])
    assert np.allclose(ratios("linear", quarters, 100, first=0.6, last=0.2), [0.6, 0.5, 0.4, 0.3, 0.2, 0.2])


@pytest.mark.parametrize("schedule", COURSES)
def test_trap_12_held_out_text_has_the_ratio_of_the_end(schedule: str) -> None:
    assert (ratios(schedule, [0, 1, 1000], None) == 0.6).all()


def test_uniform_ratios_are_uniform_and_belong_to_the_example() -> None:
    drawn = ratios("uniform", np.arange(20_000), None, first=0.05, last=0.95)
    assert abs(np.histogram(drawn, bins=9, range=(0.05, 0.95))[0] / 20_000 - 1 / 9).max() < 0.011
    assert (drawn == ratios("uniform", np.arange(20_000), 77, first=0.05, last=0.95)).all(), "the horizon does not matter"
    higher = ratios("uniform", np.arange(20_000), None, first=0.05, last=1.0)
    assert (higher >= drawn).all(), "wider bounds only add"


@settings(deadline=None)
@given(
    st.sampled_from(MASK_SCHEDULES),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
    st.integers(1, 10**6),
    st.lists(st.integers(0, 10**7), max_size=9),
)
def test_no_schedule_leaves_its_bounds(schedule: str, first: float, last: float, horizon: int, position: list[int]) -> None:
    found = ratios(schedule, np.asarray(position, dtype=np.int64), horizon, first, last)
    assert found.shape == (len(position),)
    assert ((found >= min(first, last)) & (found <= max(first, last))).all()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MASK_SCHEDULES),
    st.floats(0.02, 1),
    st.floats(0.02, 1),
    st.floats(0.1, 1),
    st.sampled_from(COUNTS),
    st.sampled_from([None, 3, 20]),
    st.integers(0, 50),
)
def test_trap_24_capacity_is_that_of_the_largest_ratio(
    schedule: str, first: float, last: float, share: float, mask_count: str, limit: int | None, seed: int
) -> None:
    changes = {"mask_ratio": first, "mask_schedule": schedule, "final_mask_ratio": last, "predict_share": share, "mask_count": mask_count}
    recipe = replace(BERT, **changes, max_predictions=limit if mask_count == "exact" else None)
    grid = make_grid(8, 40, length=48)
    drawn = ratios(schedule, np.arange(8), 8, first, last)
    masked = grid.mask(recipe, seed=seed, ratios=drawn)
    assert masked.labels.shape == (8, recipe.slots(48)) and masked.dropped.sum() == 0
    targets = (masked.labels != IGNORE_INDEX).sum(axis=1)
    if mask_count == "exact" and limit is None:
        assert (targets == np.rint(drawn * share * 40)).all()
    elif mask_count == "exact":
        assert (targets == np.minimum(np.clip(np.rint(drawn * share * 42), 1, limit), 40)).all()


@pytest.mark.parametrize("mask_count", COUNTS)
@pytest.mark.parametrize(("unit", "overshoot"), NESTING)
def test_trap_09_masks_of_a_schedule_are_nested(unit: str, overshoot: str, mask_count: str) -> None:
    grid = make_grid(60, 60)
    recipe = replace(BERT, unit=unit, overshoot=overshoot, mask_count=mask_count)
    inner = None
    for share in (0.1, 0.25, 0.6, 1.0):
        masked = grid.mask(recipe, slots=60, ratios=np.linspace(0.02, 1.0, 60) * share)
        outer = selected(grid, masked)
        assert inner is None or not (inner & ~outer).any()
        inner = outer


@pytest.mark.parametrize("unit", ["word", "span"])
def test_a_batch_of_many_ratios_equals_its_rows(unit: str) -> None:
    grid, drawn = make_grid(6, 30, length=40), np.asarray([0.05, 0.9, 0.4, 1.0, 0.15, 0.3])
    recipe = replace(BERT, unit=unit, mask_schedule="uniform", mask_ratio=0.05, final_mask_ratio=1.0, predict_share=0.6)
    together = grid.mask(recipe, ratios=drawn)
    for row in range(6):
        part = Grid(grid.input_ids[row : row + 1], grid.word_flags[row : row + 1])
        alone = part.mask(recipe, first=row, ratios=drawn[row : row + 1])
        assert all((whole[row : row + 1] == one).all() for whole, one in zip(together[:6], alone[:6], strict=True))


# What carries loss


@pytest.mark.parametrize("mask_count", COUNTS)
@pytest.mark.parametrize(("unit", "overshoot"), NESTING)
def test_loss_is_carried_by_what_the_smaller_ratio_would_select(unit: str, overshoot: str, mask_count: str) -> None:
    """Wettig et al. 2023, Table 3: the arms (corrupt 40 %, predict 20 %) and (20 %, 20 %) have the same targets."""
    grid = make_grid(200, 126)
    recipe = replace(BERT, unit=unit, overshoot=overshoot, mask_count=mask_count)
    half = grid.mask(replace(recipe, mask_ratio=0.4, predict_share=0.5))
    small, large = grid.mask(replace(recipe, mask_ratio=0.2)), grid.mask(replace(recipe, mask_ratio=0.4))
    assert (half.labels == small.labels).all() and (half.label_positions == small.label_positions).all()
    assert (half.label_kinds == small.label_kinds).all()
    assert (half.input_ids == large.input_ids).all() and (half.selected == large.selected).all()
    assert half.labels.shape == small.labels.shape, "no slots for what carries no loss"


@pytest.mark.parametrize("unit", unit_names())
def test_only_selected_tokens_carry_loss(unit: str) -> None:
    grid = make_grid(300, 126, mean_word=2.0)
    masked = grid.mask(replace(BERT, unit=unit, mask_ratio=0.4, predict_share=0.5))
    used = masked.labels != IGNORE_INDEX
    assert np.take_along_axis(masked.selected, masked.label_positions, axis=1)[used].all()
    assert abs(used.sum() / masked.selected.sum() - 0.5) < 0.02
    assert (masked.input_ids == grid.input_ids)[~masked.selected].all()
    became = np.where(masked.input_ids == VOCABULARY.mask_id, 1, np.where(masked.input_ids != grid.input_ids, 2, 3))
    kinds = np.take_along_axis(became, masked.label_positions, axis=1)
    assert ((masked.label_kinds == kinds) | (masked.label_kinds == 2))[used].all(), "a random token may be the original by chance"
    assert abs((became == 1)[masked.selected].mean() - 0.8) < 0.02, "what carries no loss is corrupted by the same mix"


# Rare words


def counted(grid: Grid) -> np.ndarray:
    """Counts that fall over the ordinary ids as in text, and the grid filled with tokens drawn by them."""
    counts = np.zeros(VOCABULARY.padded_size, dtype=np.int64)
    counts[VOCABULARY.ordinary_ids] = 100_000 // np.arange(1, len(VOCABULARY.ordinary_ids) + 1)
    inside = ~grid.special
    grid.input_ids[inside] = np.random.default_rng(1).choice(len(counts), size=inside.sum(), p=counts / counts.sum())
    return counts


def test_weights_are_powers_of_the_counts() -> None:
    weights = frequency_weights(np.asarray([0, 1, 4, 100]), 0.5)
    assert np.allclose(weights, [10, 10, 5, 1])
    assert np.allclose(frequency_weights(np.asarray([0, 1, 4, 100]), 0.0), 1)


def test_one_draw_is_in_proportion_to_the_weights() -> None:
    grid = make_grid(40_000, 4, mean_word=1.0)
    weights = np.tile(np.asarray([1.0, 1.0, 2.0, 3.0, 4.0, 1.0]), (40_000, 1))
    for unit in ("token", "word"):
        chosen = selected(grid, grid.mask(replace(BERT, unit=unit, mask_ratio=0.25), weights=weights))
        assert (chosen.sum(axis=1) == 1).all()
        assert abs(chosen[:, 1:5].mean(axis=0) - np.asarray([0.1, 0.2, 0.3, 0.4])).max() < 0.01


def test_a_word_weighs_what_its_rarest_token_does() -> None:
    grid = make_grid(20_000, 4)
    grid.word_flags[:, 1:5] = [True, False, True, False]
    weights = np.tile(np.asarray([1.0, 1.0, 3.0, 1.0, 1.0, 1.0]), (20_000, 1))
    chosen = selected(grid, grid.mask(replace(BERT, unit="word", mask_ratio=0.5), weights=weights))
    assert abs(chosen[:, 1:5].mean(axis=0) - np.asarray([0.75, 0.75, 0.25, 0.25])).max() < 0.015


@pytest.mark.parametrize(("unit", "overshoot"), NESTING)
def test_trap_09_weighted_masks_are_nested_and_exact(unit: str, overshoot: str) -> None:
    grid = make_grid(200, 126)
    weights = frequency_weights(counted(grid), 1.0)[grid.input_ids]
    recipe = replace(BERT, unit=unit, overshoot=overshoot)
    inner, outer = (selected(grid, grid.mask(replace(recipe, mask_ratio=ratio), weights=weights, slots=126)) for ratio in (0.15, 0.4))
    assert not (inner & ~outer).any()
    assert overshoot == "stop" or (outer.sum(axis=1) == 50).all()


def test_the_histogram_moves_to_the_rare_bins() -> None:
    grid = make_grid(2000, 60)
    counts = counted(grid)
    bins = frequency_bins(counts)
    share = []
    for exponent in (0.0, 0.25, 1.0):
        chosen = selected(grid, grid.mask(replace(BERT, mask_ratio=0.2), weights=frequency_weights(counts, exponent)[grid.input_ids]))
        by_row = count_by_frequency(grid.input_ids, chosen, bins)
        assert by_row.shape == (2000, FREQUENCY_BINS) and (by_row.sum(axis=1) == chosen.sum(axis=1)).all()
        share.append(by_row.sum(axis=0) / by_row.sum())
    text = np.bincount(bins, weights=counts, minlength=FREQUENCY_BINS) / counts.sum()
    assert abs(share[0] - text).max() < 0.012, "without weights as in the text"
    assert share[0][-1] < 0.8 * share[1][-1] < 0.64 * share[2][-1] and share[0][0] > share[1][0] > share[2][0]


def test_bins_hold_about_as_much_of_the_text() -> None:
    counts = 1_000_000 // np.arange(10, 5000)
    held = np.bincount(frequency_bins(counts), weights=counts) / counts.sum()
    assert len(held) == FREQUENCY_BINS and abs(held - 1 / FREQUENCY_BINS).max() < 0.02
    assert (np.diff(frequency_bins(counts)) >= 0).all(), "0 is the commonest"
    assert frequency_bins(np.zeros(5, dtype=np.int64)).tolist() == [0] * 5


# Lengths and counts


def test_span_laws() -> None:
    assert np.allclose(length_distribution("inverse", 0.2, 3), [6 / 11, 9 / 11])  # ALBERT: 1, 1/2, 1/3 over 11/6
    geometric = 0.2 * 0.8 ** np.arange(10)
    assert np.allclose(length_distribution("geometric", 0.2, 10), np.cumsum(geometric / geometric.sum())[:-1])
    assert length_distribution("inverse", 0.2, 1).tolist() == []


def test_n_gram_lengths_as_they_come_out() -> None:
    grid = make_grid(60, 10_000, mean_word=2.0)
    recipe = replace(BERT, unit="span", span_law="inverse", max_span_length=3, mask_ratio=0.01, overshoot="stop")
    chosen, words = selected(grid, grid.mask(recipe)), grid.words()
    lengths = []
    for row in range(60):
        numbers = np.unique(words[row][chosen[row]])
        lengths += [len(run) for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)]
    shares = np.bincount(lengths, minlength=4)[1:4] / len(lengths)
    assert len(lengths) > 1500 and abs(shares - np.asarray([6, 3, 2]) / 11).max() < 0.05


@pytest.mark.parametrize(("candidates", "expected"), [(126, 19), (2, 1), (1, 1), (94, 14), (510, 20)])
def test_trap_13_the_count_of_berts_script(candidates: int, expected: int) -> None:
    """min(20, max(1, round(0.15 * length))), the length with [CLS] and [SEP]."""
    grid = make_grid(20, candidates, length=512)
    chosen = selected(grid, grid.mask(replace(BERT, max_predictions=20)))
    assert (chosen.sum(axis=1) == expected).all() and expected == min(20, max(1, round(0.15 * (candidates + 2))))
    assert replace(BERT, max_predictions=20).slots(128) == 19 and replace(BERT, max_predictions=77).slots(512) == 77


def test_the_limit_is_on_what_carries_loss() -> None:
    grid = make_grid(50, 126)
    masked = grid.mask(replace(BERT, max_predictions=20, mask_ratio=0.4, predict_share=0.5))
    assert ((masked.labels != IGNORE_INDEX).sum(axis=1) == 20).all() and (masked.selected.sum(axis=1) == 51).all()


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_borders_are_the_nearest_places_that_are_not_selected(inner: list[bool]) -> None:
    row = np.asarray([False, *inner, False])
    positions = np.flatnonzero(row)
    found = span_borders(row[None], positions[None])[0]
    for position, (left, right) in zip(positions, found, strict=True):
        assert left < position < right and not row[left] and not row[right]
        assert row[left + 1 : right].all()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"mask_schedule": "sawtooth"}, "mask_schedule"),
        ({"mask_schedule": "linear"}, "final_mask_ratio"),
        ({"mask_schedule": "linear", "final_mask_ratio": 0.0}, "final_mask_ratio"),
        ({"mask_schedule": "uniform", "final_mask_ratio": 1.2}, "final_mask_ratio"),
        ({"mask_schedule": "cosine", "mask_ratio": 0.0, "final_mask_ratio": 0.5}, "mask_ratio"),
        ({"final_mask_ratio": -0.1}, "final_mask_ratio"),
        ({"max_predictions": 0}, "max_predictions"),
        ({"max_predictions": 20, "mask_count": "bernoulli"}, "max_predictions"),
        ({"predict_share": 0.0}, "predict_share"),
        ({"predict_share": 1.1}, "predict_share"),
        ({"span_law": "uniform"}, "span_law"),
        ({"frequency_exponent": -0.5}, "frequency_exponent"),
        ({"frequency_exponent": 3.0}, "frequency_exponent"),
    ],
)
def test_values_out_of_range(changes: dict, field: str) -> None:
    with pytest.raises(InvalidFields) as error:
        replace(BERT, **changes)
    assert [problem.field for problem in error.value.problems] == [field]


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InvalidFields) as error:
        replace(BERT, mask_ratio=2.0, predict_share=0.0, unit="page")
    assert [problem.field for problem in error.value.problems] == ["mask_ratio", "predict_share", "unit"]


def test_the_recipe_has_no_field_that_the_probe_leaves_to_the_arm() -> None:
    from dataclasses import fields

    from mlm_lab.corruption.recipe import STANDARD_PROBE

    assert {field.name for field in fields(MaskingRecipe)} - STANDARD_PROBE.keys() == {
        "mask_ratio",  # which each probe has in its name
        "overshoot",
        "span_law",
        "span_p",
        "max_span_length",
    }, "the others are of no meaning for single tokens"
