"""Masked language modelling: predict the tokens that were masked (BERT: Devlin et al. 2019, section 3.1, Task 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlm_lab.corruption.recipe import PROBE_RATIOS, STANDARD_PROBE, Check, MaskingRecipe, one_of
from mlm_lab.corruption.span_borders import span_borders
from mlm_lab.data.packing import INPUT_FORMATS, PackedRows, gather_rows, plan_rows
from mlm_lab.types import Batch, ExampleKeys, ObjectiveModule, Vocabulary

if TYPE_CHECKING:
    from mlm_lab.corruption.draws import Draws
    from mlm_lab.data.token_store import TokenStore
    from mlm_lab.models.encoder_config import Encoder


@dataclass(frozen=True, kw_only=True)
class MLM(MaskingRecipe):
    """Select a share of the tokens, replace them, predict the originals at those places.

    BERT's first task (Devlin et al. 2019, section 3.1 and appendix A.2), where the defaults are from: 15 %, of which 80/10/10 become mask,
    random and unchanged tokens. mask_ratio, replace_mix and unit make it RoBERTa's, whole-word masking, SpanBERT's or PMI-masking. A step
    costs the encoder at all positions and the vocabulary projection at the selected ones alone, so a higher ratio costs more: at 15 % there
    is a target for each seventh position.

    Batches hold, beside what `types.Batch` lists:

    label_kinds            (B, S) int8      what became of each slot's token: 1 mask, 2 random, 3 kept; 0 unused slot
    dropped_slots          (B,) int64       tokens that were to carry loss but found no slot (bernoulli counts: not a row in 10**8)
    corpus_tokens          (B,) int64       the row's tokens without special tokens
    selected_by_frequency  (B, F) int64     with frequency_exponent: selected tokens by how common they are (`corruption.frequency`)
    span_borders           (B, S, 2) int64  with span_boundary_weight: the places left and right of the span that each slot's token is in
    """

    input_format: str
    """How rows are filled. full_sentences: whole sentences, across documents (RoBERTa); document_sentences: a row ends with its document;
    contiguous: to the last place, sentences cut."""
    cross_document_attention: bool
    """Whether the documents of a row see each other (as in BERT and RoBERTa). Positions then run on through the row, since tokens that see
    each other need places that differ; otherwise they restart at each document. The tokens of a row are the same either way."""
    span_boundary_weight: float
    """Weight of SpanBERT's span-boundary objective beside the masked-token loss: each selected token is predicted a second time from the
    hidden states at the borders of its span (the nearest tokens that are not selected) and its place in it (Joshi et al. 2020, section 3.2:
    1, with unit=span). It costs a second vocabulary projection of the same targets. 0: none, and no head for it."""

    code_version: ClassVar[int] = 1
    """Raised when the same fields come to mean other batches: part of the run's hash."""

    def checks(self) -> tuple[Check, ...]:
        return (
            *super().checks(),
            ("input_format", self.input_format, self.input_format in INPUT_FORMATS, one_of(*INPUT_FORMATS)),
            ("span_boundary_weight", self.span_boundary_weight, self.span_boundary_weight >= 0, "0 or more"),
        )

    def plan(self, store: TokenStore, max_length: int, draws: Draws) -> PackedRows:
        """Lay out an epoch of packed rows. Raises UserError as `data.packing.plan_rows`."""
        plan = plan_rows(store, max_length, self.input_format, draws)
        self.prepare(store, max_length)
        return plan

    def make_batch(self, store: TokenStore, plan: PackedRows, keys: ExampleKeys) -> Batch:
        """Make the batch of these examples, a function of (plan, keys, the recipe) alone."""
        rows = gather_rows(store, plan, keys.index)
        masked = self.mask_rows(rows.input_ids, rows.special, rows.source, store, plan.draws, keys)
        attention_mask, position_ids = rows.attention_mask, rows.position_ids
        if self.cross_document_attention:
            attention_mask, position_ids = rows.as_one_document()
        batch = {
            **masked.as_batch(),
            "attention_mask": attention_mask,
            "position_ids": position_ids,
            "corpus_tokens": plan.stops[keys.index] - plan.starts[keys.index],
        }
        return batch | {"span_borders": span_borders(masked.selected, masked.label_positions)} if self.span_boundary_weight else batch

    def build(self, model: Encoder, vocabulary: Vocabulary) -> ObjectiveModule:
        """Make encoder, masked-token head and, unless its weight is 0, the head of the span-boundary objective."""
        from mlm_lab.objectives.mlm_module import MaskedLM
        from mlm_lab.objectives.span_boundary import MaskedSpans

        if self.span_boundary_weight:
            return MaskedSpans(model, vocabulary, self.span_boundary_weight, self.puts_masks)
        return MaskedLM(model, vocabulary, self.puts_masks)

    def probes(self) -> dict[str, MLM]:
        """mlm_15, mlm_40: so many percent of single tokens, 80/10/10, over the same rows for every arm; only whether documents see each
        other is the arm's."""
        standard = replace(self, **STANDARD_PROBE, input_format="full_sentences", span_boundary_weight=0.0)
        return {f"mlm_{round(100 * ratio)}": replace(standard, mask_ratio=ratio) for ratio in PROBE_RATIOS}
