"""The decoder of an encoder-decoder: a causal encoder whose layers also attend to another encoder's output (Vaswani et al. 2017; T5).

decoder_input_ids (B, T) -> shared embeddings -> [causal self-attention, cross-attention, feed-forward] x layers -> (norm) -> (B, T, D)
memory (B, L, D) ----------------------------------------------------------^

It follows the same description as its encoder, so `model=tiny` says both. What the description says of positions holds for the decoder's
self-attention; its relative bias has a table of its own, all of it for what came before. Cross-attention knows no positions, as in T5,
unless the relative bias is one that starts on the neighbours: then it has such a bias as well, by the distance from the place in the
memory that a decoder position is about (`memory_places`: the gap that it fills).

What that is for: the first thing any of these models learns is how frequent tokens are, and until it is learnt every weight is driven one
way, whatever the input. A masked encoder finds back, since each position is told its own token. Behind a cross-attention that looks
everywhere alike nothing tells the encoder's outputs apart, and under post-norm, which shrinks all that is not the common part, they
stay one vector. Two starts bring the signal through: cross-attention with T5's weights, and heads that look at the gap's neighbours.

Shapes: T decoder positions, L encoder positions, H heads; else as in types.
"""

from __future__ import annotations

import torch
from torch import nn

from mlm_lab.models.attention import AttentionContext, attend, compute_dtype, written_out
from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.relative_bias import RelativeBias
from mlm_lab.models.transformer import Embeddings, Layer, TransformerEncoder, initialise, layer_norm
from mlm_lab.models.vocabulary_loss import VocabularyHead
from mlm_lab.types import Flops


class CrossAttention(nn.Module):
    """Multi-head attention from the decoder's positions to the encoder's, with one matrix for keys and values.

    Its weights start as T5's do (hidden_size^-0.5 where scores are scaled), whatever initializer_range is: at 0.02 and width 128 what it
    adds would be 4 % of what it is added to, and the encoder would hear next to nothing of the loss.
    """

    def __init__(self, config: Encoder):
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.attention_dropout
        self.q = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)
        self.kv = nn.Linear(config.hidden_size, 2 * config.hidden_size, bias=config.bias)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        q = self.q(x).unflatten(2, (self.num_heads, -1)).transpose(1, 2)  # (B, H, T, D / H)
        k, v = self.kv(memory).unflatten(2, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # each (B, H, L, D / H)
        attended = attend(q, k, v, context, self.dropout if self.training else 0.0)
        return self.out(attended.transpose(1, 2).flatten(2))


class DecoderLayer(Layer):
    """Self-attention, cross-attention and feed-forward, each with its residual sum and its norm before or after."""

    def __init__(self, config: Encoder, first: bool):
        super().__init__(config, first)
        self.cross_attention = CrossAttention(config)
        self.cross_norm = layer_norm(config)

    def forward(self, x: torch.Tensor, context: AttentionContext, memory: torch.Tensor, cross_context: AttentionContext) -> torch.Tensor:
        if self.pre_norm:
            x = x + self.dropout(self.attention(self.attention_norm(x), context))
            x = x + self.dropout(self.cross_attention(self.cross_norm(x), memory, cross_context))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, context)))
        x = self.cross_norm(x + self.dropout(self.cross_attention(x, memory, cross_context)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class TransformerDecoder(TransformerEncoder):
    """See `Encoder` for its choices. embeddings: its encoder's, which it shares."""

    layer_class = DecoderLayer

    def __init__(self, config: Encoder, embeddings: Embeddings):
        super().__init__(config, embeddings.tokens.num_embeddings, causal=True, embeddings=embeddings)
        self.cross_bias = None
        if config.starts_on_neighbours:
            self.cross_bias = RelativeBias(config.num_heads, config.relative_buckets, config.relative_max_distance, neighbours=True)
        for layer in self.layers:
            layer.cross_attention.apply(lambda module: initialise(module, config.hidden_size**-0.5))

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        memory: torch.Tensor,
        memory_mask: torch.Tensor,
        memory_places: torch.Tensor,
    ) -> torch.Tensor:
        """input_ids, attention_mask (B, T), memory (B, L, D), memory_mask (B, L) -> (B, T, D). Memory is seen where its mask is not 0.

        memory_places: (B, T) in range(L), from where the cross-attention's relative bias counts, if there is one.
        """
        self.config.check_length(input_ids.shape[1])
        position_ids = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        cross_context = self._cross_context(memory_mask, memory_places)
        x = self.embed(input_ids, position_ids, None)
        for index, context in enumerate(self.attention_contexts(attention_mask, position_ids)):
            x = self.layer(index, x, context, memory, cross_context)
        return self.final_norm(x)

    def _cross_context(self, memory_mask: torch.Tensor, memory_places: torch.Tensor) -> AttentionContext:
        """Every decoder position sees all of the memory that is not padding."""
        dtype = compute_dtype(self.embedding_weight)
        seen = memory_mask > 0
        seen = seen | ~seen.any(dim=1, keepdim=True)  # an empty row sees its padding, so that no softmax is over nothing
        allowed = seen[:, None, None].expand(-1, 1, memory_places.shape[1], -1)  # (B, 1, T, L)
        bias = None
        if self.cross_bias is not None:
            by_place = self.cross_bias(memory_mask.shape[1]).transpose(0, 1)  # (L, H, L)
            rows = by_place.index_select(0, memory_places.flatten())  # (B * T, H, L)
            bias = rows.unflatten(0, memory_places.shape).transpose(1, 2).to(dtype)  # (B, H, T, L)
        elif self.writes_scores(memory_mask.device, dtype):
            bias = torch.zeros(self.config.num_heads, 1, 1, device=memory_mask.device, dtype=dtype)
        dropout = self.config.attention_dropout if self.training else 0.0
        return AttentionContext(allowed, None, None) if bias is None else written_out(allowed, bias, dropout)

    def flops(self, batch_size: int, length: int, memory_length: int) -> float:
        """Forward FLOPs of the matrix products, as `TransformerEncoder.flops`, with those of the cross-attention. length: T."""
        projections = 2 * (length + memory_length) * self.hidden_size**2  # queries and output of T positions, keys and values of L
        attention = 2 * length * memory_length * self.hidden_size
        return super().flops(batch_size, length) + 2.0 * batch_size * self.num_layers * (projections + attention)


class VocabularyProjection(VocabularyHead):
    """Decoder output to vocabulary: no more than a product, as in T5; tied to the token embeddings unless the config says otherwise.

    T5 multiplies by hidden_size^-0.5 before it, since its embeddings start at a standard deviation of 1. Ours start at
    initializer_range, so the logits are small enough at the start as they are.
    """

    def __init__(self, config: Encoder, vocabulary_rows: int, vocabulary_size: int):
        super().__init__()
        self.width = width = config.embedding_width
        self.narrow = nn.Linear(config.hidden_size, width, bias=False) if width != config.hidden_size else nn.Identity()
        self.weight = None if config.tie_output else nn.Parameter(torch.empty(vocabulary_rows, width))
        mask = torch.zeros(vocabulary_rows).masked_fill(torch.arange(vocabulary_rows) >= vocabulary_size, float("-inf"))
        self.register_buffer("mask", mask, persistent=False)
        initialise(self.narrow, config.initializer_range)
        if self.weight is not None:
            nn.init.normal_(self.weight, std=config.initializer_range)

    def projected(self, hidden: torch.Tensor, embedding_weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.narrow(hidden), embedding_weight if self.weight is None else self.weight, self.mask

    def flops(self, rows: int) -> Flops:
        """Forward FLOPs of (rows, D) hidden states; `head` is the projection's part."""
        narrowing = 2.0 * rows * sum(weight.numel() for weight in self.narrow.parameters())
        projection = 2.0 * rows * self.width * len(self.mask)
        return Flops(narrowing + projection, projection)
