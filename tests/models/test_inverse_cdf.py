"""Sampling by the inverse CDF: the distribution, the ends, and rows that depend on nothing else (traps.md 18)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from mlm_lab.corruption.draws import Draws
from mlm_lab.models.inverse_cdf import LARGEST_UNIFORM, sample_by_inverse_cdf


def probabilities(rows: int, vocabulary: int, scale: float = 2.0, seed: int = 0) -> torch.Tensor:
    return (scale * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))).softmax(dim=-1)


def uniforms(rows: int, seed: int = 1) -> torch.Tensor:
    return torch.rand(rows, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("vocabulary", [3, 64, 200, 1000])
def test_trap_18_the_distribution_is_the_softmax(vocabulary: int):
    """Chi-square over 100,000 draws, at the uniforms that examples draw."""
    row = probabilities(1, vocabulary)
    drawn = Draws(0, "train").uniform(np.zeros(5000, int), np.arange(5000), "generator sample", 20).astype(np.float32).ravel()
    sampled = sample_by_inverse_cdf(row.expand(len(drawn), -1), torch.from_numpy(drawn))
    expected = row[0].double().numpy()
    expected *= len(drawn) / expected.sum()
    counts = np.bincount(sampled.numpy(), minlength=vocabulary)
    common = expected >= 5
    rest = (counts[~common].sum(), expected[~common].sum()) if (~common).any() else (0, 0)
    pooled = [np.append(part[common], extra) if extra else part[common] for part, extra in ((counts, rest[0]), (expected, rest[1]))]
    assert stats.chisquare(*pooled).pvalue > 1e-3


@pytest.mark.parametrize("vocabulary", [1, 63, 64, 65, 30522])
def test_it_is_the_first_token_whose_cumulative_probability_is_above_u(vocabulary: int):
    rows = 300
    p, u = probabilities(rows, vocabulary), uniforms(rows)
    sampled = sample_by_inverse_cdf(p, u)
    above = p.double().cumsum(-1).numpy()
    target = u.double().numpy() * above[:, -1]
    chosen = np.take_along_axis(above, sampled.numpy()[:, None], axis=1)[:, 0]
    assert ((chosen > target - 1e-6) & (chosen - p.gather(1, sampled[:, None])[:, 0].numpy() <= target + 1e-6)).all()
    assert sampled.dtype == torch.int64 and sampled.shape == (rows,)


def test_tokens_of_probability_zero_are_never_drawn():
    p = probabilities(400, 300)
    dead = torch.rand(p.shape, generator=torch.Generator().manual_seed(2)) < 0.7
    dead[:, :70], dead[:, 250:] = True, True  # whole blocks, first and last among them
    p = p.masked_fill(dead, 0.0)
    for u in (torch.zeros(400), torch.full((400,), LARGEST_UNIFORM), uniforms(400)):
        assert (p.gather(1, sample_by_inverse_cdf(p, u)[:, None]) > 0).all()


def test_the_ends():
    one = torch.zeros(1, 130)
    one[0, 100] = 1.0
    for u in (0.0, 0.5, LARGEST_UNIFORM):
        assert sample_by_inverse_cdf(one, torch.tensor([u])).item() == 100
    even = torch.full((1, 4), 0.25)
    for u, token in ((0.0, 0), (0.2499, 0), (0.25, 1), (0.5, 2), (0.75, 3), (LARGEST_UNIFORM, 3)):
        assert sample_by_inverse_cdf(even, torch.tensor([u])).item() == token
    assert sample_by_inverse_cdf(torch.zeros(0, 130), torch.zeros(0)).shape == (0,)


def test_trap_18_a_row_depends_on_no_other():
    p, u = probabilities(50, 500), uniforms(50)
    together = sample_by_inverse_cdf(p, u)
    assert together.tolist() == [sample_by_inverse_cdf(p[row : row + 1], u[row : row + 1]).item() for row in range(50)]
    assert (sample_by_inverse_cdf(3.0 * p, u) == together).float().mean() > 0.98, "sums that are not 1"
