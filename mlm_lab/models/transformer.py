"""The encoder: embeddings, layers, final norm. One set of layers serves BERT and the modern recipe; the config says which.

input_ids, position_ids, token_type_ids -> embeddings (B, L, E) -> (projection) -> [attention, feed-forward] x layers -> (norm) -> (B, L, D)

Own code: torch's nn.TransformerEncoder has no packed documents, relative bias or rotary positions; the encoders of Transformers, which is
no core requirement, are reached by model=transformers, and the same functions are held to them by tests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, overload

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from mlm_lab.models.attention import (
    AttentionContext,
    SelfAttention,
    block_mask,
    causal_mask,
    compute_dtype,
    find_segments,
    rotary_angles,
    window_mask,
    writes_scores,
    written_out,
)
from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.relative_bias import NEIGHBOUR_OFFSETS, RelativeBias


def layer_norm(config: Encoder, width: int | None = None) -> nn.LayerNorm | nn.RMSNorm:
    """The norm that the whole model uses, of width hidden_size unless another is given."""
    if config.norm == "rms":
        return nn.RMSNorm(width or config.hidden_size, eps=config.norm_eps)
    return nn.LayerNorm(width or config.hidden_size, eps=config.norm_eps, bias=config.bias)


def gelu(config: Encoder) -> Callable[[torch.Tensor], torch.Tensor]:
    """The GELU that the whole model uses, exact or by the tanh formula."""
    return partial(F.gelu, approximate="tanh") if config.activation == "gelu_tanh" else F.gelu


class FeedForward(nn.Module):
    """D -> intermediate -> D, with GELU, GeGLU or ReLU between."""

    def __init__(self, config: Encoder):
        super().__init__()
        self.gated = config.activation == "geglu"
        self.activation = F.relu if config.activation == "relu" else gelu(config)
        self.up = nn.Linear(config.hidden_size, config.intermediate_size * (2 if self.gated else 1), bias=config.bias)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = self.up(x)
        if self.gated:
            activated, gate = up.chunk(2, dim=-1)
            return self.down(self.activation(activated) * gate)
        return self.down(self.activation(up))


class Layer(nn.Module):
    """Attention and feed-forward, each with its residual sum and its norm before or after."""

    def __init__(self, config: Encoder, first: bool):
        super().__init__()
        self.pre_norm = config.norm_position == "pre"
        self.attention = SelfAttention(config)
        self.feed_forward = FeedForward(config)
        # Normalised embeddings need no second norm on their way into the first layer (ModernBERT).
        self.attention_norm = nn.Identity() if first and self.pre_norm and config.embedding_norm else layer_norm(config)
        self.feed_forward_norm = layer_norm(config)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, x: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        if self.pre_norm:
            x = x + self.dropout(self.attention(self.attention_norm(x), context))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, context)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Embeddings(nn.Module):
    """Token, position and segment embeddings, summed, normalised, dropped out. Two encoders may share one."""

    def __init__(self, config: Encoder, vocabulary_rows: int):
        super().__init__()
        width = config.embedding_width
        self.tokens = nn.Embedding(vocabulary_rows, width)
        self.positions = nn.Embedding(config.max_positions, width) if config.positions == "learned" else None
        self.types = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.norm = layer_norm(config, width) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, token_type_ids: torch.Tensor | None) -> torch.Tensor:
        x = self.tokens(input_ids)  # (B, L, E)
        if self.positions is not None:
            x = x + self.positions(position_ids)
        if self.types is not None:
            x = x + (self.types.weight[0] if token_type_ids is None else self.types(token_type_ids))
        return self.dropout(self.norm(x))


class TransformerEncoder(nn.Module):
    """See `Encoder` for its choices, and `Encoder.build`.

    embeddings: another encoder's, which this one then shares; of the same embedding_width. None: its own.

    written_out: whether attention without a relative bias computes its scores (True) or SDPA does (False). None: what is faster.
    by_segments: whether it leaves out what is in no document of a row (varlen attention: on GPUs, in half precision, without dropout).
    recomputes: whether layers keep their input alone for the backward pass.
    """

    layer_class: type[Layer] = Layer
    written_out: bool | None = None
    by_segments: bool = False
    recomputes: bool = False

    def __init__(self, config: Encoder, vocabulary_rows: int, *, causal: bool = False, embeddings: Embeddings | None = None):
        super().__init__()
        self.config, self.causal = config, causal
        self.hidden_size, self.num_layers = config.hidden_size, config.num_layers
        self.embeddings = Embeddings(config, vocabulary_rows) if embeddings is None else embeddings
        factorised = config.embedding_width != config.hidden_size
        self.embedding_projection = nn.Linear(config.embedding_width, config.hidden_size) if factorised else nn.Identity()
        self.relative_bias = None
        if config.relative_bias != "none":
            neighbours, matches = config.starts_on_neighbours, config.relative_bias == "matches"
            buckets = config.relative_buckets, config.relative_max_distance
            self.relative_bias = RelativeBias(config.num_heads, *buckets, neighbours, bidirectional=not causal, matches=matches)
        self.layers = nn.ModuleList(
            self.layer_class(config, first=index == 0) for index in range(1 if config.share_layers else config.num_layers)
        )
        self.final_norm = layer_norm(config) if config.final_norm else nn.Identity()
        for part in self.children():
            if part is not embeddings:
                part.apply(lambda module: initialise(module, config.initializer_range))
        if config.relative_bias == "matches":
            for layer in self.layers:
                layer.attention.match(range(len(NEIGHBOUR_OFFSETS), config.num_heads))

    @property
    def longest(self) -> int | None:
        """Tokens that the table of positions is enough for; None where there is none."""
        return self.config.max_positions if self.config.positions == "learned" else None

    @property
    def embedding_weight(self) -> nn.Parameter:
        """(V, E): the token embeddings, to which output projections are tied."""
        return self.embeddings.tokens.weight

    @overload
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        output_hidden_states: Literal[False] = False,
    ) -> torch.Tensor: ...

    @overload
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        *,
        output_hidden_states: Literal[True],
    ) -> list[torch.Tensor]: ...

    def forward(self, input_ids, attention_mask, position_ids=None, token_type_ids=None, output_hidden_states=False):
        """(B, L) each -> (B, L, D): the last layer's output.

        attention_mask as in `types.Batch` (numbers of documents); position_ids default to 0 .. L - 1, token_type_ids to 0. With
        output_hidden_states a list of num_layers + 1: the embeddings and each layer's output, the last after the final norm.
        """
        self.config.check_length(input_ids.shape[1])
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        x = self.embed(input_ids, position_ids, token_type_ids)
        hidden_states = [x]
        for index, context in enumerate(self.attention_contexts(attention_mask, position_ids)):
            x = self.layer(index, x, context)
            hidden_states.append(x)
        hidden_states[-1] = self.final_norm(x)
        return hidden_states if output_hidden_states else hidden_states[-1]

    def layer(self, index: int, *inputs: torch.Tensor | AttentionContext) -> torch.Tensor:
        """What the layer of this number makes of its inputs; layers may be shared."""
        layer = self.layers[index % len(self.layers)]
        if self.recomputes and self.training and torch.is_grad_enabled():
            return checkpoint(layer, *inputs, use_reentrant=False)
        return layer(*inputs)

    def embed(self, input_ids: torch.Tensor, position_ids: torch.Tensor, token_type_ids: torch.Tensor | None) -> torch.Tensor:
        """(B, L) each -> (B, L, D): what the first layer takes."""
        embedded = self.embeddings(input_ids, position_ids, token_type_ids)  # (B, L, E)
        # Autocast would leave the projection's result, and with pre-norm the whole residual stream, in half precision.
        return self.embedding_projection(embedded).to(embedded.dtype)

    def attention_contexts(self, attention_mask: torch.Tensor, position_ids: torch.Tensor) -> list[AttentionContext]:
        """What each layer attends with, from (B, L) masks and positions: made once for the global layers and once for the local ones."""
        config, length = self.config, attention_mask.shape[1]
        if self.by_segments and self.relative_bias is None:
            return self._segment_contexts(attention_mask, position_ids)
        allowed = block_mask(attention_mask)
        if self.causal:
            allowed = allowed & causal_mask(length, allowed.device)
        bias = self._written_out_bias(length, attention_mask.device)
        everywhere = self._context(allowed, bias, position_ids, config.rotary_base)
        if not any(config.is_local(layer) for layer in range(self.num_layers)):
            return [everywhere] * self.num_layers
        allowed = allowed & window_mask(length, config.local_window, allowed.device)
        nearby = self._context(allowed, bias, position_ids, config.local_rotary_base or config.rotary_base)
        return [nearby if config.is_local(layer) else everywhere for layer in range(self.num_layers)]

    def _segment_contexts(self, attention_mask: torch.Tensor, position_ids: torch.Tensor) -> list[AttentionContext]:
        config, segments = self.config, find_segments(attention_mask)

        def context(rotary_base: float, reach: int) -> AttentionContext:
            seen = segments._replace(window=(reach, 0 if self.causal else reach))
            return self._context(None, None, position_ids, rotary_base)._replace(segments=seen)

        everywhere = context(config.rotary_base, -1)
        nearby = (
            everywhere if config.local_window is None else context(config.local_rotary_base or config.rotary_base, config.local_window // 2)
        )
        return [nearby if config.is_local(layer) else everywhere for layer in range(self.num_layers)]

    def _written_out_bias(self, length: int, device: torch.device) -> torch.Tensor | None:
        """(H, L, L) or (H, 1, 1) to add to the scores, in the compute dtype; None where SDPA computes."""
        dtype = compute_dtype(self.embedding_weight)
        if self.relative_bias is not None:
            return self.relative_bias(length).to(dtype)
        return torch.zeros(self.config.num_heads, 1, 1, device=device, dtype=dtype) if self.writes_scores(device, dtype) else None

    def writes_scores(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether attention without a relative bias is written out."""
        return writes_scores(device, dtype) if self.written_out is None else self.written_out

    def _context(
        self, allowed: torch.Tensor | None, bias: torch.Tensor | None, position_ids: torch.Tensor, rotary_base: float
    ) -> AttentionContext:
        dropout = self.config.attention_dropout if self.training else 0.0
        context = AttentionContext(allowed, None, None) if bias is None else written_out(allowed, bias, dropout)
        if self.config.positions == "rotary":
            return context._replace(rotary=rotary_angles(position_ids, self.hidden_size // self.config.num_heads, rotary_base))
        return context

    def flops(self, batch_size: int, length: int) -> float:
        """Forward FLOPs of the matrix products (a multiply-add is two); norms, softmax and look-ups are left out. Masked scores count: they
        are computed, also those outside a local window."""
        width, inner, embedding = self.hidden_size, self.config.intermediate_size, self.config.embedding_width
        projections = 4 * width * width + (3 if self.config.activation == "geglu" else 2) * width * inner
        attention = 2 * width * length
        widening = width * embedding if embedding != width else 0
        return 2.0 * batch_size * length * (self.num_layers * (projections + attention) + widening)


def initialise(module: nn.Module, standard_deviation: float) -> None:
    """BERT's initial weights: normal matrices and embeddings, zero biases, unit norms."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=standard_deviation)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
