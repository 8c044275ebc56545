"""Whole words, each as likely as any other, until the row's count of tokens (whole-word masking, google-research/bert, May 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.corruption.maskable_text import MaskableText

if TYPE_CHECKING:
    from mlm_lab.corruption.recipe import MaskingRecipe
    from mlm_lab.data.token_store import TokenStore
LOOK_AHEAD = 16
"""Words beyond the budget that are looked at for one that still fits."""


def starts(store: TokenStore) -> np.ndarray:
    """(T,) bool: the first token of each word."""
    return store.word_starts


def longest(recipe: MaskingRecipe) -> int:
    return 1


def select(text: MaskableText, budgets: np.ndarray, recipe: MaskingRecipe) -> np.ndarray:
    """(B, L) bool: the words that come first, up to the first that would go over; what happens to that one is recipe.overshoot."""
    # A word has a candidate or more, so the one that would go over is among the first `budget + 1`.
    for at_most in (int(budgets.max(initial=0)) + 1 + LOOK_AHEAD, None):
        order, _, count = text.ordered_words("word", at_most)  # (B, N)
        sizes = np.where(np.arange(order.shape[1]) < count[:, None], text.word_sizes[order], 0)
        taken = np.cumsum(sizes, axis=1) <= budgets[:, None]
        quotas = sizes * taken  # tokens to select of each word
        left = budgets - quotas.sum(axis=1)
        if recipe.overshoot == "skip":
            _fill_up(sizes, quotas, left, taken.sum(axis=1))
        elif recipe.overshoot == "cut":
            rows = np.flatnonzero(~taken.all(axis=1))  # those where a word would go over
            quotas[rows, taken[rows].sum(axis=1)] = left[rows]
        if recipe.overshoot != "skip" or not left[count > order.shape[1]].any():
            break  # no row may go on with a word that was not looked at
    chosen = quotas > 0
    return text.select_of(order[chosen], quotas[chosen])


def _fill_up(sizes: np.ndarray, quotas: np.ndarray, left: np.ndarray, reached: np.ndarray) -> None:
    """Go on from the word `reached` of each row and add to quotas each word that still fits, until nothing is left or nothing fits."""
    columns = np.arange(sizes.shape[1])
    rows = np.flatnonzero(left)
    while len(rows):
        fits = (sizes[rows] > 0) & (sizes[rows] <= left[rows, None]) & (columns > reached[rows, None])
        chosen, rows = fits.argmax(axis=1)[fits.any(axis=1)], rows[fits.any(axis=1)]
        quotas[rows, chosen] = sizes[rows, chosen]
        left[rows] -= sizes[rows, chosen]
        reached[rows] = chosen
        rows = rows[left[rows] > 0]
