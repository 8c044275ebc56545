"""T5's buckets, and the start on the neighbours."""

from __future__ import annotations

import pytest
import torch

from mlm_lab.models.relative_bias import RelativeBias, relative_bucket


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (32, 256), (16, 20), (8, 64)])
def test_buckets_equal_transformers_t5(num_buckets: int, max_distance: int):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    offsets = torch.arange(-600, 601)
    expected = t5.T5Attention._relative_position_bucket(offsets, bidirectional=True, num_buckets=num_buckets, max_distance=max_distance)
    assert torch.equal(relative_bucket(offsets, num_buckets, max_distance), expected)


def test_neighbour_start_of_four_heads():
    bias = RelativeBias(6, 32, 128, neighbours=True)(200).detach()
    previous, following, near, far, *rest = bias
    assert (previous.diagonal(-1) == 4).all() and previous.count_nonzero() == 199, "head 0 looks at the word before"
    assert (following.diagonal(1) == 4).all() and following.count_nonzero() == 199, "head 1 at the word after"
    for head, slope in ((near, 0.3), (far, 0.05)):
        assert torch.allclose(head[100, 96:105], -slope * torch.arange(-4, 5).abs())
        assert (head[0].diff() <= 0).all() and (head[:, 0].diff() <= 0).all(), "falls with the distance on both sides"
    assert all((head == 0).all() for head in rest)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_matches_start_leaves_out_the_token_itself(bidirectional: bool):
    bias = RelativeBias(6, 32, 128, neighbours=True, bidirectional=bidirectional, matches=True)(50).detach()
    neighbours = RelativeBias(6, 32, 128, neighbours=True, bidirectional=bidirectional)(50).detach()
    assert torch.equal(bias[:2], neighbours[:2])
    past = torch.ones(50, 50).tril().bool()
    for head in bias[2:]:
        assert (head.diagonal() == -4).all() and head[past].count_nonzero() == 50


@pytest.mark.parametrize("num_heads", [1, 2, 3])
def test_fewer_heads_take_the_first_of_the_starts(num_heads: int):
    few = RelativeBias(num_heads, 32, 128, neighbours=True)(20)
    torch.testing.assert_close(few, RelativeBias(4, 32, 128, neighbours=True)(20)[:num_heads])


def test_zero_start_and_gradient():
    bias = RelativeBias(2, 32, 128, neighbours=False)
    out = bias(6)
    assert (out == 0).all()
    weight = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(0))
    (out * weight).sum().backward()
    before = int(relative_bucket(torch.tensor(-1), 32, 128))
    torch.testing.assert_close(bias.weight.grad[before], weight.diagonal(-1, 1, 2).sum(-1))
