"""Masking: what is selected, how much of it, and what becomes of it (traps.md 1-9, 13, 24)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mlm_lab.corruption.counts import slot_capacity
from mlm_lab.corruption.draws import Draws
from mlm_lab.corruption.masking import Masked, mask_tokens, unit_names
from mlm_lab.corruption.recipe import MaskingRecipe
from mlm_lab.corruption.units.span import length_distribution
from mlm_lab.types import IGNORE_INDEX
from tests.corruption.stores import VOCABULARY

UNITS = ("token", "word", "span")
COUNTS = ("exact", "bernoulli", "stochastic")
OVERSHOOTS = ("skip", "stop", "cut")


BERT = MaskingRecipe(
    mask_ratio=0.15,
    mask_schedule="constant",
    final_mask_ratio=None,
    replace_mix=(0.8, 0.1, 0.1),
    replace_unit=None,
    mask_count="exact",
    max_predictions=None,
    predict_share=1.0,
    unit="token",
    overshoot="skip",
    span_law="geometric",
    span_p=0.2,
    max_span_length=10,
    frequency_exponent=0.0,
    mask_unknown=True,
    duplicates=None,
)


@dataclass(frozen=True)
class Grid:
    """Rows of ordinary tokens between [CLS] and [SEP], padded to one length."""

    input_ids: np.ndarray
    word_flags: np.ndarray

    @property
    def special(self) -> np.ndarray:
        return np.isin(self.input_ids, [VOCABULARY.pad_id, VOCABULARY.cls_id, VOCABULARY.sep_id])

    def mask(
        self,
        recipe: MaskingRecipe,
        seed: int = 0,
        epoch: int = 0,
        slots: int | None = None,
        first: int = 0,
        ratios: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> Masked:
        rows, length = self.input_ids.shape
        index = np.arange(first, first + rows)
        draws, epochs, slots = Draws(seed, "train"), np.full(rows, epoch), slots or recipe.slots(length)
        ratios = np.full(rows, recipe.mask_ratio) if ratios is None else ratios
        grid = (self.input_ids, self.special, self.word_flags)
        return mask_tokens(*grid, recipe, VOCABULARY, draws, epochs, index, slots, ratios=ratios, weights=weights)

    def words(self) -> np.ndarray:
        """(B, L) number of the word of each token."""
        return np.cumsum(self.word_flags | self.special, axis=1)


def make_grid(rows: int, candidates: int, length: int | None = None, mean_word: float = 1.5, seed: int = 0) -> Grid:
    generator = np.random.default_rng(seed)
    ids = np.full((rows, length or candidates + 2), VOCABULARY.pad_id)
    ids[:, 0], ids[:, candidates + 1] = VOCABULARY.cls_id, VOCABULARY.sep_id
    ids[:, 1 : candidates + 1] = generator.choice(VOCABULARY.ordinary_ids, size=(rows, candidates))
    flags = generator.random(ids.shape) < 1 / mean_word
    flags[:, 1] = True
    return Grid(ids, flags)


def selected(grid: Grid, masked: Masked) -> np.ndarray:
    """(B, L) bool; also holds the slots to what they must be: distinct, in the row, with the original as label."""
    used = masked.labels != IGNORE_INDEX
    chosen = np.zeros(grid.input_ids.shape, dtype=int)
    rows = np.broadcast_to(np.arange(len(used))[:, None], used.shape)
    np.add.at(chosen, (rows[used], masked.label_positions[used]), 1)
    assert chosen.max(initial=0) <= 1
    assert (masked.labels[used] == grid.input_ids[rows[used], masked.label_positions[used]]).all()
    assert (masked.label_positions[~used] == 0).all() and (masked.label_kinds[~used] == 0).all()
    assert (masked.input_ids == grid.input_ids)[chosen == 0].all()
    return chosen == 1


@pytest.mark.parametrize(
    "mix", [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.85, 0.0, 0.15), (0.9, 0.1, 0.0), (0.1, 0.2, 0.7)]
)
@pytest.mark.parametrize(("unit", "replace_unit"), [("token", "token"), ("token", "word"), ("word", "word"), ("span", "token")])
def test_trap_01_replace_mix(mix: tuple[float, float, float], unit: str, replace_unit: str) -> None:
    grid = make_grid(2000, 126)
    masked = grid.mask(replace(BERT, replace_mix=mix, unit=unit, replace_unit=replace_unit, mask_ratio=0.5))
    used = masked.labels != IGNORE_INDEX
    assert used.sum() > 100_000
    became = np.take_along_axis(masked.input_ids, masked.label_positions, axis=1)[used]
    kinds = masked.label_kinds[used]
    for kind, share in zip((1, 2, 3), mix, strict=True):
        assert abs((kinds == kind).mean() - share) < 0.005
        assert share > 0 or (kinds != kind).all()
    assert ((became == VOCABULARY.mask_id) == (kinds == 1)).all()
    assert (became == masked.labels[used])[kinds == 3].all()
    by_chance = (became == masked.labels[used])[kinds == 2]
    assert mix[1] == 0 or abs(by_chance.mean() - 1 / len(VOCABULARY.ordinary_ids)) < 0.005


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("mask_count", COUNTS)
@pytest.mark.parametrize("mask_unknown", [True, False])
def test_trap_02_candidates(unit: str, mask_count: str, mask_unknown: bool) -> None:
    grid = make_grid(300, 60, length=80)
    ids = grid.input_ids
    ids[:, 10], ids[:, 20], ids[:, 30], ids[:, 40] = VOCABULARY.mask_id, VOCABULARY.unk_id, VOCABULARY.sep_id, VOCABULARY.sentinel_ids[3]
    masked = grid.mask(replace(BERT, unit=unit, mask_count=mask_count, mask_unknown=mask_unknown, mask_ratio=0.9))
    chosen = selected(grid, masked)
    forbidden = sorted(set(VOCABULARY.special_ids) - {VOCABULARY.unk_id})
    assert not chosen[np.isin(ids, forbidden)].any()
    assert (ids == VOCABULARY.mask_id)[:, 10].all() and (masked.input_ids[:, 10] == VOCABULARY.mask_id).all()
    assert (chosen[:, 20].mean() > 0.7) if mask_unknown else not chosen[:, 20].any()
    if unit == "token" and mask_count == "exact":
        assert (chosen.sum(axis=1) == round(0.9 * (57 if mask_unknown else 56))).all(), "the ratio is over candidates"


def test_trap_02_the_ratio_is_over_candidates() -> None:
    grid = make_grid(4000, 126)
    assert (selected(grid, grid.mask(BERT)).sum(axis=1) == 19).all()  # 15 % of 126 = 18.9
    assert abs(selected(grid, grid.mask(replace(BERT, mask_count="stochastic"))).sum(axis=1).mean() - 18.9) < 0.02


@pytest.mark.parametrize("unit", UNITS)
def test_trap_03_random_tokens_are_uniform_over_ordinary_ids(unit: str) -> None:
    grid = make_grid(1500, 126)
    masked = grid.mask(replace(BERT, replace_mix=(0.0, 1.0, 0.0), unit=unit, mask_ratio=0.4))
    became = np.take_along_axis(masked.input_ids, masked.label_positions, axis=1)[masked.labels != IGNORE_INDEX]
    drawn = np.bincount(became, minlength=VOCABULARY.padded_size)
    assert drawn[list(VOCABULARY.special_ids)].sum() == 0 and drawn[VOCABULARY.size :].sum() == 0
    assert stats.chisquare(drawn[VOCABULARY.ordinary_ids]).pvalue > 1e-4


@pytest.mark.parametrize(("candidates", "none"), [(8, 0.272), (16, 0.0743), (32, 0.0055)])
def test_trap_04_rows_without_targets_occur_with_coins(candidates: int, none: float) -> None:
    grid = make_grid(20_000, candidates)
    masked = grid.mask(replace(BERT, mask_count="bernoulli"))
    empty = (masked.labels == IGNORE_INDEX).all(axis=1)
    assert abs(empty.mean() - none) < 4 * np.sqrt(none / 20_000)
    assert (masked.input_ids == grid.input_ids)[empty].all()


def test_trap_05_exact_counts_are_distinct() -> None:
    for candidates, ratio in [(126, 0.15), (10, 0.15), (3, 0.15), (510, 0.4), (7, 1.0), (126, 0.99)]:
        grid = make_grid(50, candidates)
        chosen = selected(grid, grid.mask(replace(BERT, mask_ratio=ratio)))
        assert (chosen.sum(axis=1) == round(ratio * candidates)).all()


@pytest.mark.parametrize("unit", UNITS)
def test_trap_05_stochastic_and_bernoulli_have_the_right_mean_and_spread(unit: str) -> None:
    grid = make_grid(4000, 61, mean_word=1.0)
    stochastic = grid.mask(replace(BERT, unit=unit, mask_count="stochastic", overshoot="cut"))
    count = selected(grid, stochastic).sum(axis=1)
    assert set(count) == {9, 10} and abs(count.mean() - 0.15 * 61) < 0.03
    count = selected(grid, grid.mask(replace(BERT, unit=unit, mask_count="bernoulli", overshoot="cut"))).sum(axis=1)
    expected = stats.binom(61, 0.15)
    assert abs(count.mean() - expected.mean()) < 4 * expected.std() / np.sqrt(4000)
    assert abs(count.std() / expected.std() - 1) < 0.05


def test_trap_05_coins_are_independent() -> None:
    grid = make_grid(5000, 40)
    chosen = selected(grid, grid.mask(replace(BERT, mask_count="bernoulli", mask_ratio=0.3)))[:, 1:41]
    correlation = np.corrcoef(chosen.T)
    assert abs(chosen.mean(axis=0) - 0.3).max() < 4 * np.sqrt(0.21 / 5000)
    assert abs(correlation[~np.eye(40, dtype=bool)]).max() < 5 / np.sqrt(5000)


@pytest.mark.parametrize("unit", ["word", "span"])
@pytest.mark.parametrize("ratio", [0.15, 0.4, 0.8, 1.0])
def test_trap_05_units_are_added_until_the_budget(unit: str, ratio: float) -> None:
    grid = make_grid(300, 126)
    budget = round(ratio * 126)
    counts = {
        rule: selected(grid, grid.mask(replace(BERT, unit=unit, overshoot=rule, mask_ratio=ratio))).sum(axis=1) for rule in OVERSHOOTS
    }
    assert (counts["cut"] == budget).all(), "spans that overlap do not lose coverage"
    assert (counts["skip"] <= budget).all() and counts["skip"].mean() > budget - 0.1
    assert (counts["stop"] <= budget).all() and (counts["stop"] <= counts["skip"]).all()
    longest = 10 if unit == "span" else 1
    assert (counts["stop"] > budget - longest * np.bincount(grid.words()[0]).max() * 3).all()
    assert ratio == 1.0 or (counts["stop"] < budget).any(), "the rule was never needed"


@pytest.mark.parametrize("unit", ["word", "span"])
@pytest.mark.parametrize("overshoot", ["skip", "stop"])
@pytest.mark.parametrize("ratio", [0.15, 0.6])
def test_trap_06_words_are_whole(unit: str, overshoot: str, ratio: float) -> None:
    grid = make_grid(400, 126, mean_word=2.0)
    masked = grid.mask(replace(BERT, unit=unit, overshoot=overshoot, mask_ratio=ratio))
    chosen, words = selected(grid, masked), grid.words()
    assert masked.input_ids.shape == grid.input_ids.shape
    for row in range(400):
        inside = np.bincount(words[row], weights=chosen[row])
        size = np.bincount(words[row])
        assert np.isin(inside, [0]).sum() + (inside == size)[inside > 0].sum() == len(size)


def kinds_by_word(grid: Grid, masked: Masked) -> list[np.ndarray]:
    """The kinds of the selected tokens of each word of two tokens or more."""
    words = np.take_along_axis(grid.words(), masked.label_positions, axis=1)
    found = []
    for row in range(len(words)):
        used = masked.label_kinds[row] > 0
        found += [masked.label_kinds[row][used & (words[row] == word)] for word in np.unique(words[row][used])]
    return [kinds for kinds in found if len(kinds) > 1]


def test_trap_06_one_draw_from_the_mix_a_word() -> None:
    grid = make_grid(300, 126, mean_word=2.5)
    for recipe, one_draw in [
        (replace(BERT, unit="word"), True),
        (replace(BERT, unit="span"), True),
        (replace(BERT, unit="token", replace_unit="word", mask_ratio=0.5), True),
        (replace(BERT, unit="word", replace_unit="token"), False),
        (replace(BERT, unit="token", mask_ratio=0.5), False),
    ]:
        mixed = np.mean([len(set(kinds)) > 1 for kinds in kinds_by_word(grid, grid.mask(recipe))])
        assert mixed == 0 if one_draw else mixed > 0.3


def test_trap_06_sub_tokens_of_a_random_word_draw_their_own_ids() -> None:
    grid = make_grid(300, 126, mean_word=2.5)
    masked = grid.mask(replace(BERT, unit="word", replace_mix=(0.0, 1.0, 0.0)))
    became = np.take_along_axis(masked.input_ids, masked.label_positions, axis=1)
    words = np.take_along_axis(grid.words(), masked.label_positions, axis=1)
    same_word = (words[:, 1:] == words[:, :-1]) & (masked.labels[:, 1:] != IGNORE_INDEX)
    assert same_word.sum() > 1000
    assert (became[:, 1:] == became[:, :-1])[same_word].mean() < 0.03


def test_trap_07_span_lengths() -> None:
    probabilities = np.diff(np.concatenate([[0.0], length_distribution("geometric", 0.2, 10), [1.0]]))
    assert abs((probabilities * np.arange(1, 11)).sum() - 3.797) < 5e-4  # 4.46 were they clipped
    assert np.allclose(probabilities[1:] / probabilities[:-1], 0.8)
    # As they come out, in words: long rows and few spans, so that hardly any touch.
    grid = make_grid(60, 20_000, mean_word=2.0)
    chosen, words = selected(grid, grid.mask(replace(BERT, unit="span", mask_ratio=0.01, overshoot="stop"))), grid.words()
    lengths = []
    for row in range(60):
        numbers = np.unique(words[row][chosen[row]])
        lengths += [len(run) for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)]
    lengths = np.asarray(lengths)
    assert len(lengths) > 1200
    assert abs(lengths.mean() - 3.797) < 4 * 2.7 / np.sqrt(len(lengths))
    observed = np.bincount(np.minimum(lengths, 10), minlength=11)[1:]
    assert abs(observed / len(lengths) - probabilities).max() < 0.04


def test_spans_stay_in_their_document() -> None:
    grid = make_grid(500, 20)
    grid.input_ids[:, 10], grid.input_ids[:, 11] = VOCABULARY.sep_id, VOCABULARY.cls_id
    chosen = selected(grid, grid.mask(replace(BERT, unit="span", mask_ratio=0.3, span_p=0.01, overshoot="cut"), slots=6))
    # Spans are longer than what is left of a document: were they to go on in the next one, the second half would begin selected often.
    both = chosen[:, 9] & chosen[:, 12]
    assert both.mean() < 0.5 * min(chosen[:, 9].mean(), chosen[:, 12].mean())


@settings(deadline=None)
@given(st.sampled_from(UNITS), st.sampled_from(COUNTS), st.sampled_from(OVERSHOOTS), st.integers(0, 100), st.floats(0.02, 1.0))
def test_trap_08_a_batch_equals_its_rows(unit: str, mask_count: str, overshoot: str, seed: int, ratio: float) -> None:
    grid = make_grid(5, 30, length=40, seed=seed)
    recipe = replace(BERT, unit=unit, mask_count=mask_count, overshoot=overshoot, mask_ratio=ratio)
    together = grid.mask(recipe, seed=seed, epoch=3)
    for row in range(5):
        alone = Grid(grid.input_ids[row : row + 1], grid.word_flags[row : row + 1]).mask(recipe, seed=seed, epoch=3, first=row)
        for whole, one in zip(together[:6], alone[:6], strict=True):
            assert whole.dtype == one.dtype and (whole[row : row + 1] == one).all()


@pytest.mark.parametrize("mask_count", COUNTS)
@pytest.mark.parametrize(("unit", "overshoot"), [("token", "skip"), ("word", "stop"), ("word", "cut"), ("span", "stop"), ("span", "cut")])
def test_trap_09_masks_are_nested(unit: str, overshoot: str, mask_count: str) -> None:
    grid = make_grid(500, 126)
    recipe = replace(BERT, unit=unit, overshoot=overshoot, mask_count=mask_count)
    small = grid.mask(replace(recipe, mask_ratio=0.15), slots=126)
    large = grid.mask(replace(recipe, mask_ratio=0.4), slots=126)
    inner, outer = selected(grid, small), selected(grid, large)
    assert not (inner & ~outer).any()
    assert (small.input_ids == large.input_ids)[inner].all(), "what a token becomes is the same too"
    assert inner.sum() < 0.5 * outer.sum()


def test_trap_09_skipping_does_not_nest() -> None:
    """The docstring says so; if this ever fails, it may promise more."""
    grid = make_grid(500, 126)
    small, large = (selected(grid, grid.mask(replace(BERT, unit="word", mask_ratio=ratio))) for ratio in (0.15, 0.17))
    assert 0 < (small & ~large).sum() < 0.05 * small.sum()


def test_trap_13_reference_numbers() -> None:
    """512 candidates, 15 %, 80/10/10: 77 targets (76.8 rounded), of which 61.44 masked, 7.68 random, 7.68 kept in the mean."""
    grid = make_grid(3000, 512)
    masked = grid.mask(BERT)
    assert ((masked.labels != IGNORE_INDEX).sum(axis=1) == 77).all()
    for kind, mean in ((1, 61.44), (2, 7.68), (3, 7.68)):
        assert abs((masked.label_kinds == kind).sum(axis=1).mean() * 76.8 / 77 - mean) < 0.3
    stochastic = grid.mask(replace(BERT, mask_count="stochastic"))
    assert abs(511 / (stochastic.labels != IGNORE_INDEX).sum(axis=1).mean() - 6.65) < 0.01


def test_trap_24_capacity() -> None:
    assert slot_capacity(126, 0.15, "exact") == 19
    assert slot_capacity(126, 0.15, "stochastic") == 19
    assert slot_capacity(126, 0.15, "bernoulli") == int(np.ceil(18.9 + 6 * np.sqrt(126 * 0.15 * 0.85)))
    assert slot_capacity(126, 0.9, "bernoulli") == 126
    assert slot_capacity(2, 0.01, "exact") == 1
    for mask_count in COUNTS:
        grid = make_grid(5000, 126)
        assert grid.mask(replace(BERT, mask_count=mask_count)).dropped.sum() == 0


@pytest.mark.parametrize(("slots", "share"), [(20, 0.34), (24, 0.08), (32, 0.0008)])
def test_trap_24_overflow_is_dropped_in_draw_order_and_counted(slots: int, share: float) -> None:
    grid = make_grid(20_000, 126)
    recipe = replace(BERT, mask_count="bernoulli")
    full, short = grid.mask(recipe, slots=126), grid.mask(recipe, slots=slots)
    assert short.labels.shape == (20_000, slots)
    expected = stats.binom.sf(slots, 126, 0.15)
    assert abs(expected / share - 1) < 0.06
    assert abs((short.dropped > 0).mean() - expected) < 4 * np.sqrt(expected / 20_000)
    everything, kept = selected(grid, full), selected(grid, short)
    assert not (kept & ~everything).any()
    assert (everything.sum(axis=1) - kept.sum(axis=1) == short.dropped).all()
    # In draw order: what is kept is what exact counts of that many select.
    rows = short.dropped > 0
    first = selected(grid, grid.mask(replace(BERT, mask_ratio=slots / 126)))
    assert (kept == first)[rows].all()


def test_equal_ranks_at_the_border(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row in millions; the count still holds and the left one comes first."""
    monkeypatch.setattr(Draws, "ranks", lambda self, epoch, index, stream, slots: np.full((len(index), slots), 7, dtype=np.uint32))
    grid = make_grid(4, 20)
    chosen = selected(grid, grid.mask(BERT))
    assert (chosen == (np.arange(22) >= 1) & (np.arange(22) <= 3)).all()


def test_units_are_found_by_their_files() -> None:
    assert set(UNITS) <= set(unit_names())
