"""Masking of a batch: candidates -> budget -> units until the budget -> slots -> replacement.

    input_ids, word_starts  (B, L)     what the rows hold
    candidates              (B, L)     what may be selected: no special token, no padding; UNK as the recipe says
    budgets                 (B,)       counts.py: tokens to select
    selected                (B, L)     units/<unit>.py: whole units in the order of their draws until the budget
    positions, labels       (B, S)     the selected tokens, left to right, in a fixed number of slots
    input_ids               (B, L)     replacement.py: mask, random or kept

A unit is a module in units/ with `select(text, budgets, recipe) -> (B, L) bool`, found by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple, Protocol

import numpy as np

from mlm_lab.corruption import units
from mlm_lab.corruption.counts import draw_budgets, slot_capacity
from mlm_lab.corruption.draws import Draws
from mlm_lab.corruption.maskable_text import MaskableText
from mlm_lab.corruption.replacement import draw_replacements
from mlm_lab.types import IGNORE_INDEX, Vocabulary


class Recipe(Protocol):
    """What decides how a batch is masked (the fields of an objective; objectives/mlm.py says what each means)."""

    mask_ratio: float
    replace_mix: Sequence[float]
    replace_unit: str | None
    mask_count: str
    unit: str
    overshoot: str
    mask_unknown: bool
    span_p: float
    max_span_length: int


class Masked(NamedTuple):
    """A masked batch."""

    input_ids: np.ndarray  # (B, L) int64
    label_positions: np.ndarray  # (B, S) int64, increasing; 0 in unused slots
    labels: np.ndarray  # (B, S) int64, IGNORE_INDEX in unused slots
    label_kinds: np.ndarray  # (B, S) int8: 1 mask, 2 random, 3 kept; 0 in unused slots
    dropped: np.ndarray  # (B,) int64: tokens that were to be selected but found no slot


def unit_names() -> tuple[str, ...]:
    return tuple(sorted(module.name for module in iter_modules(units.__path__)))


def mask_tokens(
    input_ids: np.ndarray,
    special: np.ndarray,
    word_flags: np.ndarray,
    recipe: Recipe,
    vocabulary: Vocabulary,
    draws: Draws,
    epoch: np.ndarray,
    index: np.ndarray,
    slots: int,
) -> Masked:
    """Mask rows. input_ids (B, L); special, word_flags (B, L) bool; epoch, index (B,) key the draws; slots is S.

    A row whose budget is over the S slots loses what comes last in the order of its draws.
    """
    text = MaskableText(find_candidates(input_ids, special, vocabulary, recipe.mask_unknown), word_flags | special, draws, epoch, index)
    wanted = draw_budgets(text.candidates, recipe.mask_ratio, recipe.mask_count, draws, epoch, index)
    budgets = np.minimum(wanted, slots)
    selected = import_module(f"{units.__name__}.{recipe.unit}").select(text, budgets, recipe)
    row, column = np.divmod(np.flatnonzero(selected), selected.shape[1])
    found = np.bincount(row, minlength=len(selected))
    used = np.arange(slots) < found[:, None]  # (B, S)
    positions = np.zeros(used.shape, dtype=np.int64)
    positions[used] = column
    tokens = np.take_along_axis(input_ids, positions, axis=1)
    by_word = recipe.replace_unit == "word" or (recipe.replace_unit is None and recipe.unit != "token")
    groups = text.word_places(positions) if by_word else positions
    replaced, kinds = draw_replacements(tokens, positions, groups, recipe.replace_mix, vocabulary, draws, epoch, index)
    corrupted = input_ids.copy()
    corrupted[row, column] = replaced[used]
    return Masked(corrupted, positions, np.where(used, tokens, IGNORE_INDEX), np.where(used, kinds, np.int8(0)), wanted - budgets)


def find_candidates(input_ids: np.ndarray, special: np.ndarray, vocabulary: Vocabulary, mask_unknown: bool) -> np.ndarray:
    """(B, L) bool: neither a special token nor padding, by place (special) and by id (a mask token that stands in the text)."""
    forbidden = vocabulary.is_special.copy()
    forbidden[vocabulary.unk_id] = not mask_unknown
    return ~(special | forbidden[input_ids])


def capacity(recipe: Recipe, candidates: int) -> int:
    """The slots S of every batch, for rows of at most so many candidates."""
    return slot_capacity(candidates, recipe.mask_ratio, recipe.mask_count)
