"""A learned bias on attention scores by relative position: T5's buckets, one table for all layers.

Raffel et al. 2020, section 2.1; shared by the layers of a post-norm encoder as in MPNet (Song et al. 2020).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

NEIGHBOUR_OFFSETS = (-1, 1)
NEIGHBOUR_START = 4.0
DISTANCE_SLOPES = (0.3, 0.05)


def relative_bucket(offset: torch.Tensor, num_buckets: int, max_distance: int, bidirectional: bool = True) -> torch.Tensor:
    """Bucket of each offset (key position - query position), of any shape.

    The first half of the buckets is for offsets <= 0, the second for those > 0. In each half the first half is exact (a bucket for each
    distance), the rest grows with the logarithm up to max_distance, beyond which all share the last. Where nothing attends to what comes
    after it (bidirectional=False), all buckets are for offsets <= 0, and those > 0 count as 0.
    """
    half = num_buckets // 2 if bidirectional else num_buckets
    exact = half // 2
    distance = offset.abs() if bidirectional else (-offset).clamp(min=0)
    # In the order of T5's own arithmetic: another order rounds to other buckets at the powers of two.
    growth = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    logarithmic = exact + (growth * (half - exact)).long()
    within = torch.where(distance < exact, distance, logarithmic.clamp(max=half - 1))
    return within + half * (offset > 0) if bidirectional else within


def neighbour_start(num_heads: int, num_buckets: int, max_distance: int, bidirectional: bool = True) -> torch.Tensor:
    """(num_buckets, H): heads 0 and 1 on offsets -1 and +1, heads 2 and 3 falling with the distance, the rest 0.

    In one direction head 1 starts on offset 0: a decoder's inputs are its targets one place later, so these are the two words before the
    one that is predicted.
    """
    # On the CPU whatever the default device is: the module may be built on the meta device.
    offsets = torch.arange(-max_distance, max_distance + 1, device="cpu")
    buckets = relative_bucket(offsets, num_buckets, max_distance, bidirectional)
    start = torch.zeros(num_buckets, num_heads, device="cpu")
    for head, offset in enumerate(NEIGHBOUR_OFFSETS[:num_heads]):
        start[buckets[offset + max_distance], head] = NEIGHBOUR_START
    # Each bucket counts as its smallest distance; one that no offset falls into is never read.
    distances = torch.zeros(num_buckets, device="cpu").scatter_reduce(0, buckets, offsets.abs().float(), "amin", include_self=False)
    for head, slope in enumerate(DISTANCE_SLOPES, start=len(NEIGHBOUR_OFFSETS)):
        if head < num_heads:
            start[:, head] = -slope * distances
    return start


class RelativeBias(nn.Module):
    """(L) -> (H, L, L): what is added to the score of query i and key j of each head.

    neighbours: starts as `neighbour_start` says, otherwise at 0. matches: with neighbours, the heads behind the first two start at 0 but
    for the token itself, which they leave out: what they look at is for queries and keys to say (`attention.SelfAttention.match`).
    """

    def __init__(
        self, num_heads: int, num_buckets: int, max_distance: int, neighbours: bool, bidirectional: bool = True, matches: bool = False
    ):
        super().__init__()
        self.num_buckets, self.max_distance, self.neighbours, self.bidirectional = num_buckets, max_distance, neighbours, bidirectional
        self.matches = matches
        self.weight = nn.Parameter(torch.zeros(num_buckets, num_heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Zero, or the start on the neighbours."""
        self.weight.zero_()
        if self.neighbours:
            self.weight.copy_(neighbour_start(self.weight.shape[1], self.num_buckets, self.max_distance, self.bidirectional))
        if self.matches:
            self.weight[:, len(NEIGHBOUR_OFFSETS) :] = 0.0
            itself = relative_bucket(
                torch.zeros(1, dtype=torch.long, device="cpu"), self.num_buckets, self.max_distance, self.bidirectional
            )
            self.weight[int(itself), len(NEIGHBOUR_OFFSETS) :] = -NEIGHBOUR_START

    def forward(self, length: int) -> torch.Tensor:
        # Offsets take 2L - 1 values: look those up, then lay each row of the matrix out as a window of them. Its gradient is a sum over
        # 2L - 1 rows instead of L * L.
        offsets = torch.arange(1 - length, length, device=self.weight.device)
        by_offset = self.weight[relative_bucket(offsets, self.num_buckets, self.max_distance, self.bidirectional)].T  # (H, 2L - 1)
        return windows(by_offset, length)


def windows(by_offset: torch.Tensor, length: int) -> torch.Tensor:
    """(H, 2L - 1) values of the offsets 1 - L .. L - 1 -> (H, L, L): that of key - query at [:, query, key].

    Rows of 2L read as rows of 2L - 1 are each one place further to the right: no look-up, and its gradient is a sum over rows.
    """
    rows = F.pad(by_offset, (0, 1))[:, None].expand(-1, length, -1).flatten(1)  # (H, L * 2L)
    return rows[:, : length * (2 * length - 1)].unflatten(1, (length, -1))[:, :, length - 1 :]
