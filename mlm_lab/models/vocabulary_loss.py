"""From hidden states to the summed cross-entropy over the vocabulary: the plain way, and a fused way that holds (N, V) values once.

plain   logits -> float32 copy -> log-softmax -> its gradient -> that in the compute dtype: five times N * V values
fused   logits -> in place, some rows at a time in cache: softmax, minus one at the label, which is the gradient of the logits

Both give the same losses, to the rounding of a float32 sum, and the same gradients, to the rounding of the compute dtype. The fused way
is an autograd function of its own: what a compiler would fuse it leaves to the compiler.

Shapes: N tokens to predict, E width, V vocabulary rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from mlm_lab.models.attention import compute_dtype
from mlm_lab.models.inverse_cdf import sample_by_inverse_cdf
from mlm_lab.types import IGNORE_INDEX

CHUNK_BYTES = 1 << 21
"""Of float32 values that are worked on at a time on a CPU: what a core's caches hold."""
DEVICE_CHUNK_BYTES = 1 << 28
"""On other devices: enough to keep them busy."""
ROW_STEP = 16
"""Rows of the fused way's buffers are a multiple of this. With another N at each step memory fills with blocks of ever new sizes and gaps
between them that no later one fits into, and each size has products of its own to set up."""


class TokenLoss(NamedTuple):
    """What predicting N tokens comes to."""

    total: torch.Tensor
    """Scalar float32, with gradient: the sum of `each`."""
    each: torch.Tensor
    """(N,) float32 without gradient; 0 where there is no label."""
    correct: torch.Tensor
    """(N,) bool: the label has the largest logit (the first of them)."""
    sampled: torch.Tensor | None
    """(N,) int64 ids drawn from the softmax; None where none were asked for."""


class VocabularyHead(nn.Module):
    """A module that turns hidden states into logits by one last product. A subclass says what goes into it.

    fused: whether the loss is computed the fused way. None: where it pays, which is on the CPU, not compiled.
    """

    fused: bool | None = None

    def projected(self, hidden: torch.Tensor, embedding_weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(N, D), (V, E) -> what is multiplied (N, E), by what (V, E), and what is added (V,): -inf in the vocabulary's padding rows."""
        raise NotImplementedError

    def forward(self, hidden: torch.Tensor, embedding_weight: torch.Tensor) -> torch.Tensor:
        """(N, D), (V, E) -> (N, V) logits; -inf in the padding rows of the vocabulary, which are never predicted."""
        return F.linear(*self.projected(hidden, embedding_weight))

    def loss(
        self, hidden: torch.Tensor, embedding_weight: torch.Tensor, labels: torch.Tensor, uniforms: torch.Tensor | None = None
    ) -> TokenLoss:
        """(N, D), (V, E), (N,) ids or IGNORE_INDEX. uniforms: (N,) in [0, 1), to draw a token each from the softmax by."""
        fused = hidden.device.type == "cpu" and not torch.compiler.is_compiling() if self.fused is None else self.fused
        if not fused:
            return plain_loss(F.linear(*self.projected(hidden, embedding_weight)).float(), labels, uniforms)
        parts = self.projected(F.pad(hidden, (0, 0, 0, -len(hidden) % ROW_STEP)), embedding_weight)
        learns = torch.is_grad_enabled() and any(part.requires_grad for part in parts)
        return TokenLoss(*_FusedLoss.apply(*parts, labels, uniforms, compute_dtype(embedding_weight), learns))


def plain_loss(logits: torch.Tensor, labels: torch.Tensor, uniforms: torch.Tensor | None) -> TokenLoss:
    """(N, V) float32 -> the loss as torch has it: what the fused way is held against."""
    losses = F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="none")
    found = logits.detach()
    sampled = None if uniforms is None else sample_by_inverse_cdf(found.softmax(dim=-1), uniforms)
    return TokenLoss(losses.sum(), losses.detach(), found.argmax(dim=-1) == labels, sampled)  # IGNORE_INDEX is no id


class _FusedLoss(torch.autograd.Function):
    """The logits' buffer becomes that of their gradient. The inputs may have more rows than there are labels: they count for nothing."""

    @staticmethod
    def forward(ctx, inputs, weight, bias, labels, uniforms, dtype, learns):
        with torch.autocast(inputs.device.type, enabled=False):
            low_inputs, low_weight = inputs.to(dtype), weight.to(dtype)
            logits = F.linear(low_inputs, low_weight, bias.to(dtype))  # (N and some rows, V)
            each, correct, sampled = _consume(logits[: len(labels)], labels, uniforms, with_gradient=learns)
        if learns:
            logits[len(labels) :] = 0.0
            ctx.save_for_backward(low_inputs, low_weight, logits)
            ctx.dtypes = inputs.dtype, weight.dtype, bias.dtype
        ctx.mark_non_differentiable(each, correct, *([] if sampled is None else [sampled]))
        return each.sum(), each, correct, sampled

    @staticmethod
    def backward(ctx, scale, *unused):
        """scale: gradient of the sum. It is taken up by the small factor of each product."""
        inputs, weight, gradient = ctx.saved_tensors
        found = [None] * 7
        with torch.autocast(inputs.device.type, enabled=False):
            if ctx.needs_input_grad[0]:
                found[0] = ((gradient @ weight).float() * scale).to(ctx.dtypes[0])  # (N, E)
            if ctx.needs_input_grad[1]:
                scaled = (inputs.float() * scale).to(inputs.dtype)
                found[1] = (gradient.t() @ scaled).to(ctx.dtypes[1])  # (V, E)
            if ctx.needs_input_grad[2]:
                ones = gradient.new_ones(1, len(gradient))
                found[2] = ((ones @ gradient).float().squeeze(0) * scale).to(ctx.dtypes[2])  # (V,): a product is the fastest sum
        return tuple(found)


def _consume(
    logits: torch.Tensor, labels: torch.Tensor, uniforms: torch.Tensor | None, with_gradient: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """(N, V) logits -> losses, correct, samples, each (N,). Where the gradient is asked for, that of the sum of the losses takes the place
    of the logits."""
    each, correct = (
        torch.empty(len(labels), dtype=torch.float32, device=logits.device),
        torch.empty(len(labels), dtype=torch.bool, device=logits.device),
    )
    sampled = None if uniforms is None else torch.empty_like(labels)
    at_a_time = CHUNK_BYTES if logits.device.type == "cpu" else DEVICE_CHUNK_BYTES
    rows, all_real = max(1, at_a_time // (4 * logits.shape[1])), bool((labels != IGNORE_INDEX).all())
    for start in range(0, len(labels), rows):
        part = slice(start, start + rows)
        values, ids, real = logits[part].float(), labels[part].clamp(min=0)[:, None], labels[part] != IGNORE_INDEX
        own, largest = values.gather(1, ids), values.amax(dim=1, keepdim=True)
        correct[part] = _is_first(values, ids, (own == largest).squeeze(1) & real)
        probabilities = torch.softmax(values, dim=1)
        # That of the largest logit is one over the sum of exponentials, and never small: exact where the label's own is rounded to 0.
        each[part] = torch.where(real, (largest - own - probabilities.amax(dim=1, keepdim=True).log()).squeeze(1), 0.0)
        if sampled is not None:
            sampled[part] = sample_by_inverse_cdf(probabilities, uniforms[part])
        if with_gradient:
            probabilities.scatter_add_(1, ids, probabilities.new_full(ids.shape, -1.0))
            logits[part] = probabilities if all_real else probabilities.masked_fill_(~real[:, None], 0.0)
    return each, correct, sampled


def _is_first(values: torch.Tensor, ids: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Of the rows whose own value is the largest, (N,) bool, those in which no equal one comes before it: what argmax would say."""
    rows = largest.nonzero().squeeze(1)
    largest[rows] = values[rows].argmax(dim=1) == ids[rows, 0]
    return largest
