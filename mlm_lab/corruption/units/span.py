"""Spans of whole words, until the row's count of tokens (SpanBERT, Joshi et al. 2020, section 3.1; ALBERT, Lan et al. 2020, section 4.1).

A span starts at a word that no earlier span covers, each as likely as any other unless the recipe weighs them, and is n words long by the
recipe's span law, cut off at max_span_length and renormalised (geometric with 0.2 and 10: mean 3.8 words). It ends early at a special
token, so it never crosses documents.
Spans may run into earlier ones; what counts is the tokens covered, so that coverage does not fall short of the count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.corruption.maskable_text import MaskableText

if TYPE_CHECKING:
    from mlm_lab.corruption.recipe import MaskingRecipe
    from mlm_lab.data.token_store import TokenStore

SPAN_LAWS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "geometric": lambda length, span_p: span_p * (1 - span_p) ** (length - 1),
    "inverse": lambda length, span_p: 1 / length,
}
"""span_law -> (lengths, span_p -> probabilities up to a factor)."""
_TURNS = 16
"""Span lengths drawn at a time."""


def starts(store: TokenStore) -> np.ndarray:
    """(T,) bool: the first token of each word."""
    return store.word_starts


def longest(recipe: MaskingRecipe) -> int:
    return recipe.max_span_length


def select(text: MaskableText, budgets: np.ndarray, recipe: MaskingRecipe) -> np.ndarray:
    """(B, L) bool. The loop goes over spans in the order of their draws, all rows of the batch at a time."""
    law = length_distribution(recipe.span_law, recipe.span_p, recipe.max_span_length)
    order, places, count = text.ordered_words("span")
    lengths = np.zeros_like(order)
    offsets = np.arange(recipe.max_span_length)
    # Padding on the right, so that windows of words never reach beyond the array.
    sizes = np.append(text.word_sizes, np.zeros(recipe.max_span_length, dtype=np.int64))  # (W + padding,)
    quotas = np.zeros_like(sizes)  # tokens to select of each word
    row_ends = np.searchsorted(text.words, (1 + np.arange(len(budgets))) * text.candidates.shape[1])  # word after the last of each row
    left = budgets.copy()
    for turn in range(order.shape[1]):
        if turn % _TURNS == 0:
            ahead = slice(turn, turn + _TURNS)
            drawn = text.draws.uniform(text.epoch, text.index, "span length", places[:, ahead])
            lengths[:, ahead] = 1 + np.searchsorted(law, drawn, side="right")
        rows = np.flatnonzero((left > 0) & (count > turn))
        if len(rows) == 0:
            break
        rows = rows[quotas[order[rows, turn]] == 0]
        words = order[rows, turn][:, None] + offsets  # (R, max_span_length)
        size, quota = sizes[words], quotas[words]
        inside = (words < row_ends[rows, None]) & (offsets < lengths[rows, turn][:, None]) & np.logical_and.accumulate(size > 0, axis=1)
        added = np.where(inside & (quota == 0), size, 0)
        over = added.sum(axis=1) > left[rows]
        if recipe.overshoot == "cut":
            added = np.clip(left[rows, None] - (np.cumsum(added, axis=1) - added), 0, added)
        else:
            added[over] = 0
        chosen = added > 0
        quotas[words[chosen]] = added[chosen]
        left[rows] -= added.sum(axis=1)
        if recipe.overshoot == "stop":
            left[rows[over]] = 0
    words = np.flatnonzero(quotas[: len(text.words)])
    return text.select_of(words, quotas[words])


def length_distribution(span_law: str, span_p: float, max_span_length: int) -> np.ndarray:
    """(max_span_length - 1,) cumulative probabilities of the lengths 1, 2, ...; the last one, 1, left out so that no draw is beyond it."""
    probabilities = SPAN_LAWS[span_law](np.arange(1, max_span_length + 1), span_p)
    return np.cumsum(probabilities / probabilities.sum())[:-1]
