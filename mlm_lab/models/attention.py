"""Self-attention: what may attend to what, and the computation, in one place.

`AttentionContext` is made once for each forward and shared by the layers. `attend` takes it and chooses the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from mlm_lab.models.chunked_attention import LARGEST_BLOCK, attend_in_chunks
from mlm_lab.models.encoder_config import Encoder


class Segments(NamedTuple):
    """The stretches of a batch's rows, end to end, within which tokens attend to each other: for kernels that skip the rest."""

    borders: torch.Tensor
    """(N + 1,) int32: where each begins in the flattened (B * L) places, and the end."""
    longest: int
    """At least the length of each."""
    window: tuple[int, int] = (-1, -1)
    """How far a query sees to its left and to its right; -1: all the way."""


class AttentionContext(NamedTuple):
    """What the layers of a forward share: all of them, or all global and all local ones."""

    allowed: torch.Tensor | None
    """(B, 1, L, L) bool: query i may attend to key j. None: `segments` says it."""
    score_bias: torch.Tensor | None
    """(B, H, L, L) in the compute dtype: added to the scores, -inf where not allowed; None: `allowed` says it all, and SDPA computes."""
    rotary: tuple[torch.Tensor, torch.Tensor] | None
    """cos, sin: each (B, 1, L, D / H) float32."""
    parts: tuple[torch.Tensor, torch.Tensor] | None = None
    """What score_bias would be the sum of, where it would be too large: (H, L, L) or (B, H, L, L) bias, (B, 1, L, L) 0 or -inf."""
    segments: Segments | None = None
    """For varlen attention, which then computes."""


def writes_scores(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a model without a relative bias computes its scores too, where SDPA could do it without.

    The CPU's flash kernel is slow backward in bfloat16: 53 ms forward and backward at 32 x 4 heads x 128 x 64, one core, against 16 ms
    written out (95 against 53 at 4 x 8 heads x 512 x 64). In float32 the two are equal at length 128 and flash wins at 512.
    """
    return device.type == "cpu" and dtype == torch.bfloat16


def compute_dtype(weight: torch.Tensor) -> torch.dtype:
    """The dtype that matrix products with this weight are done in: autocast's where it is on."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def block_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """(B, L) numbers of documents -> (B, 1, L, L) bool: tokens attend to each other where their numbers are equal.

    Padding (0) attends to padding, so that no softmax is over nothing; no token attends to it.
    """
    return (attention_mask[:, :, None] == attention_mask[:, None, :])[:, None]


def find_segments(attention_mask: torch.Tensor) -> Segments:
    """(B, L) numbers of documents -> the stretches of equal numbers, padding among them; none goes on in the next row. Counts them, so the
    host waits for the device."""
    begins = torch.ones_like(attention_mask, dtype=torch.bool)
    begins[:, 1:] = attention_mask[:, 1:] != attention_mask[:, :-1]
    starts = begins.flatten().nonzero().squeeze(1)
    end = starts.new_full((1,), attention_mask.numel())
    return Segments(torch.cat([starts, end]).to(torch.int32), attention_mask.shape[1])


def blocked(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask as what is added to scores: 0 where allowed, else -inf. To add is faster than to choose, and no gradient has to choose."""
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, float("-inf"))


def written_out(allowed: torch.Tensor, bias: torch.Tensor, dropout: float) -> AttentionContext:
    """The context of attention whose scores are computed: (B, 1, L, K) bool, and what is added to the scores, (H, L, K), (H, 1, 1) or
    (B, H, L, K) in the compute dtype. Scores that would be too large a block of the CPU's memory are computed in pieces."""
    blocks = blocked(allowed, bias.dtype)
    too_large = bias.shape[-3] * blocks.numel() * blocks.element_size() > LARGEST_BLOCK
    if too_large and allowed.device.type == "cpu" and not dropout and not torch.compiler.is_compiling():
        return AttentionContext(allowed, None, None, parts=(bias, blocks))
    return AttentionContext(allowed, bias + blocks, None)


def causal_mask(length: int, device: torch.device) -> torch.Tensor:
    """(L, L) bool: queries see the keys up to their own place in the row."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def window_mask(length: int, window: int, device: torch.device) -> torch.Tensor:
    """(L, L) bool: queries see the keys up to window / 2 places away, on either side (ModernBERT: Warner et al. 2024, section 2.1.2)."""
    place = torch.arange(length, device=device)
    return (place[:, None] - place).abs() <= window // 2


def rotary_angles(position_ids: torch.Tensor, head_size: int, base: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, L) -> cos, sin of (B, 1, L, head_size), float32: wavelengths from 2 pi to 2 pi base (Su et al. 2021)."""
    frequencies = base ** (-torch.arange(0, head_size, 2, device=position_ids.device, dtype=torch.float32) / head_size)
    angles = position_ids[:, None, :, None].float() * frequencies
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Turn each pair (x[i], x[i + head_size / 2]) of (..., B, H, L, head_size) by its angle, in float32."""
    cos, sin = rotary
    first, second = x.float().chunk(2, dim=-1)
    return (x.float() * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, context: AttentionContext, dropout: float) -> torch.Tensor:
    """softmax(q k^T / sqrt(head size) + bias) v; q, k, v and the result are (B, H, L, head_size); dropout on the weights."""
    if context.segments is not None:
        borders, longest, window = context.segments
        rows = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]  # each (B * L, H, head_size)
        from torch.nn.attention import varlen  # not in torch 2.9

        out = varlen.varlen_attn(*rows, borders, borders, longest, longest, window_size=window)
        return out.unflatten(0, (len(q), -1)).transpose(1, 2)
    if context.parts is not None:
        return attend_in_chunks(q, k, v, *context.parts)
    if context.score_bias is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=context.allowed, dropout_p=dropout)
    # A bias that needs a gradient would send SDPA to its math kernel. Written out, scale and bias ride along with the first product.
    bias, q, k, v = (x.flatten(0, 1) for x in (context.score_bias, q, k, v))  # (B * H, L, ...)
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=q.shape[-1] ** -0.5)  # (B * H, L, L)
    weights = torch.softmax(scores, dim=-1)
    weights = F.dropout(weights, dropout) if dropout else weights
    return (weights @ v).unflatten(0, context.score_bias.shape[:2])


class SelfAttention(nn.Module):
    """Multi-head self-attention with one matrix for queries, keys and values."""

    def __init__(self, config: Encoder):
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.attention_dropout
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.bias)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)

    def forward(self, x: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        batch_size, length, width = x.shape
        qkv = self.qkv(x).view(batch_size, length, 3, self.num_heads, width // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, L, D / H)
        if context.rotary is not None:
            q, k = rotate(torch.stack([q, k]), context.rotary)
        attended = attend(q, k, v, context, self.dropout if self.training else 0.0)
        return self.out(attended.transpose(1, 2).reshape(batch_size, length, width))

    @torch.no_grad()
    def match(self, heads: Iterable[int]) -> None:
        """Let these heads start on tokens like the query's own: their keys are their queries, of standard deviation D^-0.5, so that the
        score of a normalised vector with itself is about sqrt(head size), with an unlike one about 0 (the product of query and key
        matrices near the identity: Trockman and Kolter 2023, "Mimetic initialization of self-attention layers")."""
        width = self.qkv.in_features
        size = width // self.num_heads
        queries, keys, _ = self.qkv.weight.split(width)
        for head in heads:
            rows = slice(head * size, (head + 1) * size)
            keys[rows] = nn.init.normal_(queries[rows], std=width**-0.5)
