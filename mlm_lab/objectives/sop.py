"""Masked tokens and sentence order prediction (ALBERT: Lan et al. 2020, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlm_lab.data.pairs import SentencePairs, pair_order
from mlm_lab.objectives.sentence_pairs import SentencePairObjective

if TYPE_CHECKING:
    from mlm_lab.corruption.draws import Draws
    from mlm_lab.data.token_store import TokenStore


@dataclass(frozen=True, kw_only=True)
class SOP(SentencePairObjective):
    """Predict masked tokens, and whether two consecutive segments stand in their order or are swapped.

    ALBERT's tasks (Lan et al. 2020, section 3.1), which found order the harder and more useful question; the paper's n-grams are unit=span,
    span_law=inverse, max_span_length=3 (+experiment=albert). Defaults are BERT's for masks and lengths, weight 1 for both losses.

    sentence_order_label: 0 = in order, 1 = swapped, with probability 0.5; both segments are always of one document. Segment ids, separators
    and masks come after the swap. mlm_weight 0 gives sentence order alone. Head, loss and cost are those of `mlm_nsp`; `data.pairs` says
    how pairs are cut and where this differs from ALBERT's script.
    """

    pair_loss = "sop"
    label_name = "sentence_order_label"
    takes_other_documents = False

    def plan(self, store: TokenStore, max_length: int, draws: Draws) -> SentencePairs:
        """Draw an epoch of pairs (`data.pairs.pair_order`).

        Raises:
            UserError: one document, mostly documents of one sentence, rows without room for two tokens.
        """
        return pair_order(store, max_length, self.short_seq_prob, self.prepare_plan(store, max_length, draws))
