"""SpanBERT's span-boundary objective beside masked language modelling (Joshi et al. 2020, section 3.2): each token of a masked span is
predicted a second time, from the tokens at the span's borders and its place in the span alone.

    hidden states left of the span, right of the span; embedding of the place counted from the left border     (N, 3 D)
        -> dense, GELU, norm -> (N, D) -> dense, GELU, norm, tied projection (models/heads.py) -> (N, V) -> summed cross-entropy

The paper's f is these two layers; it leaves the width of the place embeddings open, here D.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.heads import MaskedLMHead
from mlm_lab.models.transformer import initialise, layer_norm
from mlm_lab.models.vocabulary_loss import TokenLoss
from mlm_lab.objectives.mlm_module import MaskedLM
from mlm_lab.types import IGNORE_INDEX, Flops, Output, Sums, Vocabulary

PLACES = 64
"""Places in a span that have embeddings of their own; those beyond share the last."""


class SpanBoundaryHead(nn.Module):
    """Two borders and a place -> the loss of the token at that place."""

    def __init__(self, config: Encoder, vocabulary_rows: int, vocabulary_size: int):
        super().__init__()
        self.places = nn.Embedding(PLACES, config.hidden_size)
        self.dense = nn.Linear(3 * config.hidden_size, config.hidden_size, bias=config.bias)
        self.norm = layer_norm(config)
        for module in (self.places, self.dense):
            initialise(module, config.initializer_range)
        self.head = MaskedLMHead(config, vocabulary_rows, vocabulary_size)

    def forward(
        self, left: torch.Tensor, right: torch.Tensor, place: torch.Tensor, embedding_weight: torch.Tensor, labels: torch.Tensor
    ) -> TokenLoss:
        """(N, D), (N, D), (N,) from 0 on, (V, E), (N,)"""
        joined = torch.cat([left, right, self.places(place.clamp(0, PLACES - 1)).to(left.dtype)], dim=-1)
        return self.head.loss(self.norm(F.gelu(self.dense(joined))), embedding_weight, labels)

    def flops(self, rows: int) -> Flops:
        """Forward FLOPs of so many tokens; `head` is the projection's part."""
        head = self.head.flops(rows)
        return Flops(2.0 * rows * self.dense.weight.numel() + head.total, head.head)


class MaskedSpans(MaskedLM):
    """Encoder and both heads; satisfies `types.ObjectiveModule`. Both losses count the same targets. Batches without span_borders (the
    probe's) have masked language modelling alone."""

    def __init__(self, model: Encoder, vocabulary: Vocabulary, span_boundary_weight: float, sees_masks: bool = True):
        super().__init__(model, vocabulary, sees_masks)
        self.loss_weights = {"mlm": 1.0, "sbo": span_boundary_weight}
        self.boundary_head = SpanBoundaryHead(model, vocabulary.padded_size, vocabulary.size)

    def target_counts(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        counts = super().target_counts(batch)
        return {**counts, "sbo": counts["mlm"]} if "span_borders" in batch else counts

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Output:
        hidden = self.encoder(batch["input_ids"], batch["attention_mask"], batch.get("position_ids"), batch.get("token_type_ids"))
        tokens = self.masked_tokens(hidden, batch)
        if "span_borders" not in batch:
            return tokens
        spans = self.spans(hidden, batch)
        return Output({**tokens.losses, **spans.losses}, {**tokens.metrics, **spans.metrics})

    def spans(self, hidden: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> Output:
        """Loss and accuracy of the boundary objective from the encoder's output (B, L, D)."""
        length, flat = hidden.shape[1], hidden.flatten(0, 1)
        positions, labels = self._slots(batch["label_positions"], batch["labels"], length)
        left, _ = self._slots(batch["span_borders"][..., 0], batch["labels"], length)
        right, _ = self._slots(batch["span_borders"][..., 1], batch["labels"], length)
        found = self.boundary_head(
            flat.index_select(0, left), flat.index_select(0, right), positions - left - 1, self.encoder.embedding_weight, labels
        )
        return Output({"sbo": found.total}, {"sbo_accuracy": Sums(found.correct.sum(), (labels != IGNORE_INDEX).sum())})

    def flops(self, batch: Mapping[str, torch.Tensor]) -> Flops:
        tokens = super().flops(batch)
        if "span_borders" not in batch:
            return tokens
        spans = self.boundary_head.flops(batch["labels"].numel())
        return Flops(tokens.total + spans.total, tokens.head + spans.head)
