"""Left-to-right language modelling: predict each token from those before it (GPT: Radford et al. 2018, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mlm_lab.data.packing import INPUT_FORMATS, PackedRows, gather_rows, plan_rows
from mlm_lab.errors import require
from mlm_lab.types import IGNORE_INDEX, Batch, ExampleKeys, Objective, ObjectiveModule, Vocabulary

if TYPE_CHECKING:
    from mlm_lab.corruption.draws import Draws
    from mlm_lab.data.token_store import TokenStore
    from mlm_lab.models.encoder_config import Encoder


@dataclass(frozen=True, kw_only=True)
class CLM:
    """The baseline of the masked objectives: the same rows and the same encoder with a causal mask, and a loss at every position.

    A document's part of n tokens in a row, [CLS] and [SEP] counted, has n - 1 targets: each place predicts the next one, [CLS] is not
    predicted, [SEP] is. So one document in a row of 512 has 511 targets, 6.65 times those of a mask ratio of 0.15, and each goes through
    the vocabulary projection: a step costs more. Nothing is drawn: two seeds differ in the order of the rows alone. The rows' two keys are
    all it has; input_format=contiguous is GPT's (Radford et al. 2018, section 4.1).

    Its loss is that of another question than a masked model's: compare them after fine-tuning. Batches hold, beside inputs, mask and
    positions:

    labels         (B, L) int64   the next id of the same document at each place; IGNORE_INDEX at a document's last place and in padding
    corpus_tokens  (B,) int64     the row's tokens without special tokens
    """

    input_format: str
    """How rows are filled. full_sentences: whole sentences, across documents; document_sentences: a row ends with its document;
    contiguous: to the last place, sentences cut (GPT)."""
    cross_document_attention: bool
    """Whether a row's documents see those before them. Positions then run on through the row; otherwise they restart at each document. The
    targets are the same either way."""

    code_version: ClassVar[int] = 1
    """Raised when the same fields come to mean other batches: part of the run's hash."""
    causal: ClassVar[bool] = True
    """Its encoder sees what came before alone, so that the first token says nothing about a text (evaluation.pooling)."""

    def __post_init__(self) -> None:
        allowed = ", ".join(INPUT_FORMATS[:-1]) + " or " + INPUT_FORMATS[-1]
        require(("input_format", self.input_format, self.input_format in INPUT_FORMATS, allowed))

    def plan(self, store: TokenStore, max_length: int, draws: Draws) -> PackedRows:
        """Lay out an epoch of packed rows. Raises UserError as `data.packing.plan_rows`."""
        return plan_rows(store, max_length, self.input_format, draws)

    def make_batch(self, store: TokenStore, plan: PackedRows, keys: ExampleKeys) -> Batch:
        """Make the batch of these examples, a function of (plan, keys.index) alone."""
        rows = gather_rows(store, plan, keys.index)
        attention_mask, position_ids = rows.attention_mask, rows.position_ids
        if self.cross_document_attention:
            attention_mask, position_ids = rows.as_one_document()
        return {
            "input_ids": rows.input_ids,
            "attention_mask": attention_mask,
            "position_ids": position_ids,
            "labels": next_tokens(rows.input_ids, rows.attention_mask),
            "corpus_tokens": plan.stops[keys.index] - plan.starts[keys.index],
        }

    def build(self, model: Encoder, vocabulary: Vocabulary) -> ObjectiveModule:
        """Make encoder (causal) and next-token head."""
        from mlm_lab.objectives.clm_module import CausalLM

        return CausalLM(model, vocabulary)

    def probes(self) -> dict[str, Objective]:
        """None: a causal model cannot fill masks."""
        return {}


def next_tokens(input_ids: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """(B, L) ids and numbers of documents (0: padding) -> (B, L) int64: the next id where it is of the same document, else IGNORE_INDEX."""
    labels = np.full_like(input_ids, IGNORE_INDEX)
    same = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] > 0)
    np.copyto(labels[:, :-1], input_ids[:, 1:], where=same)
    return labels
