"""Masking of a batch: candidates -> budget -> units until the budget -> slots -> replacement.

    input_ids, word_starts  (B, L)     what the rows hold
    candidates              (B, L)     what may be selected: no special token, no padding; UNK as the recipe says
    budgets                 (B,)       counts.py: tokens to select
    selected                (B, L)     units/<unit>.py: whole units in the order of their draws until the budget
    input_ids               (B, L)     replacement.py: mask, random or kept
    positions, labels       (B, S)     those of the selected that carry loss, left to right, in a fixed number of slots

A unit is a module in units/, found by its name, with `starts(store) -> (T,) bool`, the first token of each unit (or of each word, of
which it makes its units), and `select(text, budgets, recipe) -> (B, L) bool`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from mlm_lab.corruption import units
from mlm_lab.corruption.counts import draw_budgets, script_budgets
from mlm_lab.corruption.draws import Draws
from mlm_lab.corruption.maskable_text import MaskableText
from mlm_lab.corruption.replacement import draw_replacements
from mlm_lab.types import IGNORE_INDEX, Batch, Vocabulary

if TYPE_CHECKING:
    from mlm_lab.corruption.recipe import MaskingRecipe
    from mlm_lab.data.token_store import TokenStore


class Unit(Protocol):
    """What a module in units/ has."""

    def starts(self, store: TokenStore) -> np.ndarray: ...

    def select(self, text: MaskableText, budgets: np.ndarray, recipe: MaskingRecipe) -> np.ndarray: ...

    def longest(self, recipe: MaskingRecipe) -> int:
        """Words that it takes together, at most, by the recipe."""
        ...


class Masked(NamedTuple):
    """A masked batch."""

    input_ids: np.ndarray  # (B, L) int64
    label_positions: np.ndarray  # (B, S) int64, increasing; 0 in unused slots
    labels: np.ndarray  # (B, S) int64, IGNORE_INDEX in unused slots
    label_kinds: np.ndarray  # (B, S) int8: 1 mask, 2 random, 3 kept; 0 in unused slots
    dropped: np.ndarray  # (B,) int64: tokens that were to carry loss but found no slot
    selected: np.ndarray  # (B, L) bool: all that were drawn for corruption, whether they carry loss or not
    selected_by_frequency: np.ndarray | None = None  # (B, F) int64: how many of them in each frequency bin, where the recipe weighs them

    def as_batch(self) -> Batch:
        """What a batch holds of it, under the names of `types.Batch`."""
        batch = {
            "input_ids": self.input_ids,
            "label_positions": self.label_positions,
            "labels": self.labels,
            "label_kinds": self.label_kinds,
            "dropped_slots": self.dropped,
        }
        return batch if self.selected_by_frequency is None else batch | {"selected_by_frequency": self.selected_by_frequency}


def unit_names() -> tuple[str, ...]:
    return tuple(sorted(module.name for module in iter_modules(units.__path__)))


def find_unit(name: str) -> Unit:
    return import_module(f"{units.__name__}.{name}")


def mask_tokens(
    input_ids: np.ndarray,
    special: np.ndarray,
    unit_flags: np.ndarray,
    recipe: MaskingRecipe,
    vocabulary: Vocabulary,
    draws: Draws,
    epoch: np.ndarray,
    index: np.ndarray,
    slots: int,
    *,
    ratios: np.ndarray,
    weights: np.ndarray | None = None,
) -> Masked:
    """Mask rows.

    input_ids (B, L); special, unit_flags (B, L) bool; epoch, index (B,) key the draws; slots is S; ratios (B,) is each row's mask ratio;
    weights (B, L), positive: how likely a token is to be drawn, against the others (None: all alike). A row that has more targets than the
    S slots loses what comes last in the order of its draws.
    """
    candidates = find_candidates(input_ids, special, vocabulary, recipe.mask_unknown)
    text = MaskableText(candidates, unit_flags | special, draws, epoch, index, weights)

    def budgets(ratios: np.ndarray, limit: int | None) -> np.ndarray:
        if limit is not None:
            return script_budgets(candidates, (input_ids != vocabulary.pad_id).sum(axis=1), ratios, limit)
        return draw_budgets(candidates, ratios, recipe.mask_count, draws, epoch, index)

    limit = recipe.max_predictions
    wanted = budgets(ratios * recipe.predict_share, limit)
    with_slots = np.minimum(wanted, slots)
    unit = find_unit(recipe.unit)
    predicted = selected = unit.select(text, with_slots, recipe)
    if recipe.predict_share < 1:
        selected = unit.select(text, budgets(ratios, limit and input_ids.shape[1]), recipe)  # the limit is on what carries loss
        predicted = predicted & selected  # all of it, but with overshoot=skip, which does not nest
    by_unit = recipe.replace_unit == "word" or (recipe.replace_unit is None and recipe.unit != "token")
    corrupted, kinds = _replace(input_ids, text, selected, by_unit, recipe, vocabulary)
    positions, used = _into_slots(predicted, slots)
    labels = np.where(used, np.take_along_axis(input_ids, positions, axis=1), IGNORE_INDEX)
    label_kinds = np.where(used, np.take_along_axis(kinds, positions, axis=1), np.int8(0))
    return Masked(corrupted, positions, labels, label_kinds, wanted - with_slots, selected)


def _replace(
    input_ids: np.ndarray, text: MaskableText, selected: np.ndarray, by_unit: bool, recipe: MaskingRecipe, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """(B, L) the ids after corruption, (B, L) int8 what became of each token (0: not selected)."""
    positions, used = _into_slots(selected, int(selected.sum(axis=1).max(initial=0)))
    tokens = np.take_along_axis(input_ids, positions, axis=1)
    groups = text.word_places(positions) if by_unit else positions
    replaced, drawn = draw_replacements(tokens, positions, groups, recipe.replace_mix, vocabulary, text.draws, text.epoch, text.index)
    corrupted, kinds = input_ids.copy(), np.zeros(input_ids.shape, dtype=np.int8)
    places = np.flatnonzero(selected)
    corrupted.ravel()[places], kinds.ravel()[places] = replaced[used], drawn[used]  # both go row by row, left to right
    return corrupted, kinds


def _into_slots(chosen: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """(B, L) bool, at most so many a row -> (B, S) their places, left to right, 0 in unused slots; (B, S) bool whether a slot is used."""
    row, column = np.divmod(np.flatnonzero(chosen), chosen.shape[1])
    counts = np.bincount(row, minlength=len(chosen))
    positions = np.zeros((len(chosen), slots), dtype=np.int64)
    positions.ravel()[np.arange(len(row)) + np.repeat(np.arange(len(chosen)) * slots - np.cumsum(counts) + counts, counts)] = column
    return positions, np.arange(slots) < counts[:, None]


def find_candidates(input_ids: np.ndarray, special: np.ndarray, vocabulary: Vocabulary, mask_unknown: bool) -> np.ndarray:
    """(B, L) bool: neither a special token nor padding, by place (special) and by id (a mask token that stands in the text)."""
    forbidden = vocabulary.is_special.copy()
    forbidden[vocabulary.unk_id] = not mask_unknown
    return ~(special | forbidden[input_ids])
