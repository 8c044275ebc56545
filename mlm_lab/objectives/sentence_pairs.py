"""What the objectives on sentence pairs share: masked tokens in [CLS] A [SEP] B [SEP], and a label for the pair."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mlm_lab.corruption.recipe import Check, MaskingRecipe
from mlm_lab.data.documents import TRAIN
from mlm_lab.data.pairs import PAIR_SPECIALS, SentencePairs, count_sentences, gather_pairs
from mlm_lab.errors import UserError
from mlm_lab.objectives.mlm import MLM
from mlm_lab.types import IGNORE_INDEX, Batch, ExampleKeys, ObjectiveModule, Vocabulary

if TYPE_CHECKING:
    from mlm_lab.corruption.draws import Draws
    from mlm_lab.data.token_store import TokenStore
    from mlm_lab.models.encoder_config import Encoder

MOST_ALONE = 0.5
"""Share of the sentences that may stand alone in their document."""


@dataclass(frozen=True, kw_only=True)
class SentencePairObjective(MaskingRecipe):
    """A pair loss, and with it the masked-token loss. Subclasses say which pairs.

    Batches hold, beside what `types.Batch` lists and under `label_name` (B,) int64 the pairs' labels:

    label_kinds    (B, S) int8    what became of each slot's token: 1 mask, 2 random, 3 kept; 0 unused slot
    dropped_slots  (B,) int64     tokens that were to be selected but found no slot
    corpus_tokens  (B,) int64     the row's tokens without special tokens

    With mlm_weight 0 nothing is masked, and there is one slot, unused.
    """

    short_seq_prob: float
    """Probability that a pair aims at a random length, uniform from 2 tokens to a full row, instead of a full row (BERT: 0.1)."""
    mlm_weight: float
    """Weight of the masked-token loss. 0: the pair loss alone, on text that is not masked, without the vocabulary projection."""
    pair_weight: float
    """Weight of the pair loss (BERT, ALBERT: 1). 0: the same rows and masks without it, and no head for it, so that what pairs do as input
    is told from what their loss does; mlm_weight is then above 0."""

    code_version: ClassVar[int] = 1
    pair_loss: ClassVar[str]
    """Name of the pair loss: nsp, sop."""
    label_name: ClassVar[str]
    """Name of the pairs' labels in a batch."""
    takes_other_documents: ClassVar[bool]
    """Whether a pair may need a second document."""

    def checks(self) -> tuple[Check, ...]:
        pair_weights = "0 or more, and above 0 where mlm_weight is 0"
        return (
            *super().checks(),
            ("short_seq_prob", self.short_seq_prob, 0 <= self.short_seq_prob <= 1, "in [0, 1]"),
            ("mlm_weight", self.mlm_weight, self.mlm_weight >= 0, "0 or more"),
            ("pair_weight", self.pair_weight, self.pair_weight > 0 or (self.pair_weight == 0 != self.mlm_weight), pair_weights),
        )

    def slots(self, max_length: int) -> int:
        return super().slots(max_length) if self.mlm_weight else 1

    def prepare_plan(self, store: TokenStore, max_length: int, draws: Draws) -> Draws:
        """Check that the corpus can serve, and give the draws of the epoch's plan: static masks stand on static pairs, as in BERT.

        Raises:
            UserError: rows without room for two tokens, one document, or mostly documents of one sentence.
        """
        check_corpus(store, max_length, least_documents=2 if self.takes_other_documents or store.split == TRAIN else 1)
        if self.mlm_weight:
            self.prepare(store, max_length)
        return draws if self.duplicates is None else replace(draws, epoch=draws.epoch % self.duplicates)

    def make_batch(self, store: TokenStore, plan: SentencePairs, keys: ExampleKeys) -> Batch:
        """Make the batch of these examples, a function of (plan, keys, the recipe) alone."""
        rows = gather_pairs(store, plan, keys.index)
        batch = {
            "input_ids": rows.input_ids,
            "attention_mask": rows.attention_mask,
            "position_ids": rows.position_ids,
            "token_type_ids": rows.token_type_ids,
            self.label_name: plan.labels[keys.index],
            "corpus_tokens": (plan.stops - plan.starts)[keys.index].sum(axis=1),
        }
        if not self.mlm_weight:
            return batch | _no_slots(len(keys))
        masked = self.mask_rows(rows.input_ids, rows.special, rows.source, store, plan.draws, keys)
        return batch | masked.as_batch()

    def build(self, model: Encoder, vocabulary: Vocabulary) -> ObjectiveModule:
        """Make encoder, pair head and masked-token head, each unless its weight is 0.

        Raises:
            UserError: the model has one segment embedding, which cannot tell A from B.
        """
        from mlm_lab.objectives.mlm_module import MaskedLM
        from mlm_lab.objectives.sentence_pairs_module import MaskedPairs, Pairs

        if model.type_vocab_size == 1:
            raise UserError(
                "sentence pairs have two segments",
                given="model.type_vocab_size=1",
                fix="model.type_vocab_size=2, or 0 for no segment embeddings",
            )
        if not self.mlm_weight:
            return Pairs(model, vocabulary, self.pair_loss, self.label_name, self.pair_weight)
        if not self.pair_weight:
            module = MaskedLM(model, vocabulary, self.puts_masks)
            module.loss_weights = {"mlm": self.mlm_weight}
            return module
        weights = self.mlm_weight, self.pair_weight
        return MaskedPairs(model, vocabulary, self.pair_loss, self.label_name, *weights, self.puts_masks)

    def probes(self) -> dict[str, MLM]:
        """mlm_15, mlm_40, on the rows of objective=mlm, each document for itself: the same masks as in an arm without pairs. None without
        a masked-token head."""
        if not self.mlm_weight:
            return {}
        recipe = {field.name: getattr(self, field.name) for field in fields(MaskingRecipe)}
        return MLM(**recipe, input_format="full_sentences", cross_document_attention=False, span_boundary_weight=0.0).probes()


def check_corpus(store: TokenStore, max_length: int, least_documents: int) -> None:
    """Raise UserError where pairs cannot be made of the text, with what was found and what to change."""
    if max_length < PAIR_SPECIALS + 2:
        raise UserError(
            "a row has no room for two segments between [CLS], [SEP] and [SEP]",
            where="max_length",
            given=max_length,
            allowed=f"{PAIR_SPECIALS + 2} or more",
        )
    sizes = count_sentences(store)
    alone, sentences = int((sizes == 1).sum()), int(sizes.sum())
    found = f"{len(sizes):,} documents, {alone:,} of them of one sentence; {sentences:,} sentences"
    where = f"the {store.split} split"
    if len(sizes) < least_documents:
        raise UserError(
            f"sentence pairs need {least_documents} documents or more",
            where=where,
            given=found,
            fix="give more documents in data.files (in txt files a blank line ends a document"
            + (")" if store.split == TRAIN else "), or hold out more: data.validation_share, data.validation_files"),
        )
    if alone > MOST_ALONE * sentences:
        raise UserError(
            "most sentences stand alone in their document, where nothing follows them",
            where=where,
            given=f"{found}, {alone / sentences:.0%} of them alone",
            allowed=f"at most {MOST_ALONE:.0%} alone",
            fix="keep the sentences of a text together (in txt files a blank line ends a document; elsewhere a record is one), or choose "
            "objective=mlm",
        )
    if (pairable := len(sizes) - alone) < least_documents:
        raise UserError(
            f"sentence pairs need {least_documents} documents of two sentences or more",
            where=where,
            given=f"{found}; {pairable:,} of two or more",
            fix="give more text in data.files",
        )


def _no_slots(rows: int) -> Batch:
    return {
        "label_positions": np.zeros((rows, 1), dtype=np.int64),
        "labels": np.full((rows, 1), IGNORE_INDEX, dtype=np.int64),
        "label_kinds": np.zeros((rows, 1), dtype=np.int8),
        "dropped_slots": np.zeros(rows, dtype=np.int64),
    }
