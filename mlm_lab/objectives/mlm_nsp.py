"""Masked tokens and next sentence prediction (BERT: Devlin et al. 2019, section 3.1, Tasks 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlm_lab.data.pairs import SentencePairs, pair_next
from mlm_lab.objectives.sentence_pairs import SentencePairObjective

if TYPE_CHECKING:
    from mlm_lab.corruption.draws import Draws
    from mlm_lab.data.token_store import TokenStore


@dataclass(frozen=True, kw_only=True)
class MLMNSP(SentencePairObjective):
    """Predict masked tokens, and whether B follows A or comes from another document.

    BERT's two tasks (Devlin et al. 2019, section 3.1 and appendix A.2), where the defaults are from: masks as in `MLM`, short_seq_prob 0.1,
    both losses of weight 1. mlm_weight and pair_weight weigh them; at 0 a loss has no head.

    next_sentence_label: 0 = B is next, 1 = B is random; half of the pairs of an epoch, and never more, are random. `data.pairs` says how
    pairs are cut and where this differs from BERT's script. The pair head is BERT's pooler (dense, tanh on [CLS]) and a projection to two
    logits; loss = masked-token mean + pair mean, each over its own count in the whole step; the pair loss starts at about ln 2. It costs
    next to nothing beside masked tokens, but rows are cut at documents, so short documents leave padding.
    """

    pair_loss = "nsp"
    label_name = "next_sentence_label"
    takes_other_documents = True

    def plan(self, store: TokenStore, max_length: int, draws: Draws) -> SentencePairs:
        """Draw an epoch of pairs (`data.pairs.pair_next`).

        Raises:
            UserError: fewer than two documents, mostly documents of one sentence, rows without room for two tokens.
        """
        return pair_next(store, max_length, self.short_seq_prob, self.prepare_plan(store, max_length, draws))
