"""Written-out attention, some rows and heads at a time, where the scores of a whole batch are too large a block of memory.

    bias + blocked -> + q k^T / sqrt(head size) -> softmax -> weights, kept for the backward pass -> weights v

The same operations on the same values as `attention.attend` with `score_bias`, and in the forward pass the same bits. What is saved: blocks
beyond those that the C library keeps (`training.allocator`) are mapped and zeroed anew at each step, six of them a layer, and a bias of
(B, H, L, K) with a gradient for each layer. Attention of 8 x 8 heads x 512 x 64 takes 122 ms in place of 175, forward and backward, on one
core; where blocks are small enough, nothing is gained. For the CPU, not compiled, without dropout.

Shapes: B rows, H heads, L queries, K keys, D the head's size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

LARGEST_BLOCK = 1 << 25
"""Bytes of scores beyond which they are computed in pieces."""
PIECE = 1 << 24
"""Bytes of scores that are computed at a time."""


def attend_in_chunks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, blocked: torch.Tensor) -> torch.Tensor:
    """(B, H, L, D), (B, H, K, D) twice -> (B, H, L, D).

    bias: (H, L, K) or (H, 1, 1), or (B, H, L, K) where each row has its own; added to the scores. blocked: (B, 1, L, K), 0 or -inf. Both in
    the dtype of the queries.
    """
    return _Attention.apply(bias, blocked, q, k, v)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, bias, blocked, q, k, v):
        batch_size, heads, length, size = q.shape
        out, kept = q.new_empty(batch_size, length, heads, size).transpose(1, 2), []
        with torch.autocast(q.device.type, enabled=False):
            for rows, some in _pieces(q, k):
                weights = q.new_empty(*q[rows, some].shape[:3], k.shape[2])
                torch.add(bias[some] if bias.ndim == 3 else bias[rows, some], blocked[rows], out=weights)
                flat = weights.flatten(0, 1)
                torch.baddbmm(flat, _flat(q[rows, some]), _flat(k[rows, some]).transpose(1, 2), alpha=size**-0.5, out=flat)
                torch.softmax(flat, dim=-1, out=flat)
                out[rows, some] = (flat @ _flat(v[rows, some])).view_as(out[rows, some])
                kept.append(flat)
        ctx.save_for_backward(q, k, v, *kept)
        ctx.bias = (bias.shape, bias.dtype) if bias.requires_grad else None
        return out

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, *kept = ctx.saved_tensors
        dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
        dbias = None if ctx.bias is None else torch.zeros(ctx.bias[0], dtype=torch.float32, device=q.device)
        scale = q.shape[-1] ** -0.5
        with torch.autocast(q.device.type, enabled=False):
            for (rows, some), weights in zip(_pieces(q, k), kept, strict=True):
                of_out, shape = _flat(gradient[rows, some]), q[rows, some].shape[:2]
                dv[rows, some] = (weights.transpose(1, 2) @ of_out).unflatten(0, shape)
                dscores = of_out @ _flat(v[rows, some]).transpose(1, 2)
                torch.ops.aten._softmax_backward_data.out(dscores, weights, -1, weights.dtype, grad_input=dscores)
                dq[rows, some] = (dscores @ _flat(k[rows, some])).mul_(scale).unflatten(0, shape)
                dk[rows, some] = (dscores.transpose(1, 2) @ _flat(q[rows, some])).mul_(scale).unflatten(0, shape)
                if dbias is not None and dbias.ndim == 4:
                    dbias[rows, some] = dscores.unflatten(0, shape).float()
                elif dbias is not None:  # a sum over one row is slow
                    dbias[some] += (dscores if shape[0] == 1 else dscores.unflatten(0, shape).sum(dim=0)).float()
        return None if dbias is None else dbias.to(ctx.bias[1]), None, dq, dk, dv


def _flat(x: torch.Tensor) -> torch.Tensor:
    """(b, h, L, D) -> (b * h, L, D)"""
    return x.reshape(-1, *x.shape[2:])


def _pieces(q: torch.Tensor, k: torch.Tensor) -> Iterator[tuple[slice, slice]]:
    """Rows with all their heads where they are small enough, else some heads of a row."""
    batch_size, heads, length = q.shape[:3]
    at_a_time = max(1, PIECE // (length * k.shape[2] * q.element_size()))  # heads
    rows, some = max(1, at_a_time // heads), min(at_a_time, heads)
    for row in range(0, batch_size, rows):
        for head in range(0, heads, some):
            yield slice(row, row + rows), slice(head, head + some)
