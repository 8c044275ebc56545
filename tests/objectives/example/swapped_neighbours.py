"""Swapped neighbours: some pairs of tokens change places, and the original is predicted at both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.packing import PackedRows, gather_rows, plan_rows
from mlm_lab.data.token_store import TokenStore
from mlm_lab.errors import require
from mlm_lab.models.encoder_config import Encoder
from mlm_lab.types import IGNORE_INDEX, Batch, ExampleKeys, Objective, ObjectiveModule, Vocabulary


@dataclass(frozen=True, kw_only=True)
class SwappedNeighbours:
    """A row is cut into pairs of tokens; swap_ratio of those without a special token change places. Loss: cross-entropy at both."""

    swap_ratio: float
    """Share of the pairs that change places."""

    code_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(("swap_ratio", self.swap_ratio, 0 < self.swap_ratio < 1, "between 0 and 1"))

    def plan(self, store: TokenStore, max_length: int, draws: Draws) -> PackedRows:
        return plan_rows(store, max_length, "full_sentences", draws)

    def make_batch(self, store: TokenStore, plan: PackedRows, keys: ExampleKeys) -> Batch:
        rows = gather_rows(store, plan, keys.index)
        ids, pairs = rows.input_ids, rows.input_ids.shape[1] // 2
        left, right = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
        drawn = plan.draws.uniform(keys.epoch, keys.index, "swap", pairs)  # (B, P): depends on (seed, split, epoch, index) alone
        swapped = (drawn < self.swap_ratio) & ~rows.special[:, left] & ~rows.special[:, right]
        inputs = ids.copy()
        inputs[:, left] = np.where(swapped, ids[:, right], ids[:, left])
        inputs[:, right] = np.where(swapped, ids[:, left], ids[:, right])
        target = np.repeat(swapped, 2, axis=1)  # (B, 2 P)
        return {
            "input_ids": inputs,
            "attention_mask": rows.attention_mask,
            "position_ids": rows.position_ids,
            "label_positions": np.where(target, np.arange(2 * pairs), 0),
            "labels": np.where(target, ids[:, : 2 * pairs], IGNORE_INDEX),
            "corpus_tokens": plan.stops[keys.index] - plan.starts[keys.index],
        }

    def build(self, model: Encoder, vocabulary: Vocabulary) -> ObjectiveModule:
        from mlm_lab.objectives.mlm_module import MaskedLM  # an encoder and a head: predicts `labels` at `label_positions`

        return MaskedLM(model, vocabulary, sees_masks=False)

    def probes(self) -> dict[str, Objective]:
        return {}
