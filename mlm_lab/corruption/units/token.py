"""Single tokens, each as likely as any other (BERT, Devlin et al. 2019). Masks at a lower ratio are subsets of those at a higher one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.corruption.maskable_text import MaskableText

if TYPE_CHECKING:
    from mlm_lab.corruption.recipe import MaskingRecipe
    from mlm_lab.data.token_store import TokenStore


def starts(store: TokenStore) -> np.ndarray:
    """(T,) bool: the first token of each word."""
    return store.word_starts


def longest(recipe: MaskingRecipe) -> int:
    return 1


def select(text: MaskableText, budgets: np.ndarray, recipe: MaskingRecipe) -> np.ndarray:
    """(B, L) bool: the budgets[b] candidates of row b that come first. Every overshoot rule comes to the same."""
    ranks = text.token_ranks("token")
    ordered = np.sort(ranks, axis=1)
    last = np.take_along_axis(ordered, np.maximum(budgets - 1, 0)[:, None], axis=1)
    selected = (ranks <= last) & text.candidates & (budgets > 0)[:, None]
    for row in np.flatnonzero(selected.sum(axis=1) != budgets):  # equal ranks at the border, one row in millions: the left one is first
        selected[row] = False
        selected[row, np.argsort(ranks[row], kind="stable")[: budgets[row]]] = True
    return selected
