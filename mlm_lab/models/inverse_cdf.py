"""Categorical sampling from uniforms that were drawn elsewhere, so that what is sampled depends on no generator of the device.

    probabilities (N, V) -> sums of blocks of 64 -> cumulative -> the block that u falls into
                         -> that block alone     -> cumulative -> the token

It is the inverse of one cumulative sum over V: the first token whose cumulative probability is above u. Only, a running sum over the whole
vocabulary is slow on a CPU: 22 ms for 600 x 8192 on one core, where this takes 6.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

BLOCK = 64
LARGEST_UNIFORM = 1.0 - 2.0**-24
"""The largest float32 below 1."""


def sample_by_inverse_cdf(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """(N, V) float32 that need not sum to exactly 1, (N,) float32 in [0, 1) -> (N,) int64.

    Row n depends on row n alone. Probabilities count to about 2**-24; one that is 0 is not drawn.
    """
    missing = -probabilities.shape[1] % BLOCK
    blocks = (F.pad(probabilities, (0, missing)) if missing else probabilities).unflatten(1, (-1, BLOCK))  # (N, V / 64, 64)
    block, rest = _invert(blocks.sum(dim=-1).cumsum(dim=-1), uniforms)
    chosen = blocks.gather(1, block[:, None, None].expand(-1, -1, BLOCK)).squeeze(1)  # (N, 64)
    token, _ = _invert(chosen.cumsum(dim=-1), rest)
    return block * BLOCK + token


def _invert(cumulative: torch.Tensor, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(N, K) increasing, (N,) -> the first place above u * total; how far u * total reaches into its share, in [0, 1)."""
    target = uniforms * cumulative[:, -1]  # below the total, also after rounding, since u is below 1
    place = (cumulative <= target[:, None]).sum(dim=-1)
    bounds = F.pad(cumulative, (1, 0)).gather(1, place[:, None] + torch.arange(2, device=place.device))  # (N, 2) below and above
    rest = (target - bounds[:, 0]) / (bounds[:, 1] - bounds[:, 0])
    return place, rest.clamp(0.0, LARGEST_UNIFORM)
