"""What a selected token becomes: the mask token, a random token, or itself (BERT's 80/10/10; Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.types import Vocabulary

REPLACE_UNITS = ("token", "word")
MASKED, RANDOM, KEPT = 1, 2, 3
"""Kinds of a used slot; 0 is an unused one."""
KIND_NAMES = {MASKED: "masked", RANDOM: "random", KEPT: "kept"}
"""As metrics are named: probe/mlm_15_masked_loss."""


def draw_replacements(
    tokens: np.ndarray,
    positions: np.ndarray,
    groups: np.ndarray,
    replace_mix: Sequence[float],
    vocabulary: Vocabulary,
    draws: Draws,
    epoch: np.ndarray,
    index: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Replace selected tokens, each a (B, S) slot.

    One uniform a group decides: below mask -> the mask token, below mask + random -> a random token, else kept. positions are where the
    tokens stand in the row (each draws its own random token), groups the position whose draw decides for them (their own, or the start
    of their word). Random tokens are uniform over `vocabulary.ordinary_ids`.

    Returns: (B, S) new tokens, (B, S) int8 kinds.
    """
    mask, random, keep = np.asarray(replace_mix, dtype=np.float64) / sum(replace_mix)
    decision = draws.uniform(epoch, index, "replace", groups)
    ordinary = vocabulary.ordinary_ids
    # Without a kept share the second bound is 1 and not a sum of floats that may fall short of it.
    kinds = np.where(decision < mask, MASKED, np.where(decision < (mask + random if keep > 0 else 1.0), RANDOM, KEPT)).astype(np.int8)
    drawn = ordinary[(draws.uniform(epoch, index, "random token", positions) * len(ordinary)).astype(np.int64)] if random > 0 else tokens
    return np.where(kinds == MASKED, vocabulary.mask_id, np.where(kinds == RANDOM, drawn, tokens)), kinds
