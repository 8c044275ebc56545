"""Multinomial logistic regression on dense features, by full-batch L-BFGS: deterministic, a second for 25,000 rows of width 128.

The search is torch's; scikit-learn, which has the whole, is no core requirement (nor for baselines.py, where features are sparse).

Shapes: N rows, D features, C classes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

L2 = 1.0
"""Strength of the penalty, 0.5 * L2 * |weights|^2 beside the summed cross-entropy, the features standardised; the bias has none."""
ITERATIONS = 60
"""Of L-BFGS, at most. With dozens of classes the loss is then within 1 % of its end, with a few there."""
GRADIENT = 1e-4
"""It ends where no entry of the mean loss's gradient is larger."""
SMALLEST_DEVIATION = 1e-6
"""A feature that varies less is taken as constant."""


class Linear(NamedTuple):
    """A fitted regression: features @ weight + bias are the logits."""

    weight: torch.Tensor  # (D, C)
    bias: torch.Tensor  # (C,)


def fit(features: torch.Tensor, labels: torch.Tensor, classes: int) -> Linear:
    """(N, D) float32, (N,) int64 -> the regression on these features, standardised for the fit by their mean and deviation."""
    deviation, centre = torch.std_mean(features, dim=0, correction=0)
    scale = torch.where(deviation > SMALLEST_DEVIATION, 1 / deviation.clamp(min=SMALLEST_DEVIATION), 0.0)
    standard, penalty = (features - centre) * scale, L2 / len(features)
    # The search runs in coordinates in which the features are uncorrelated: the same optimum in a third of the steps.
    basis = _whitening(standard, penalty)
    whitened = standard @ basis
    coordinates = torch.zeros(features.shape[1], classes, device=features.device, requires_grad=True)
    bias = torch.zeros(classes, device=features.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([coordinates, bias], max_iter=ITERATIONS, tolerance_grad=GRADIENT, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(torch.addmm(bias, whitened, coordinates), labels) + 0.5 * penalty * (basis @ coordinates).square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    weight = (basis @ coordinates).detach() * scale[:, None]
    return Linear(weight, bias.detach() - centre @ weight)


def _whitening(standard: torch.Tensor, penalty: float) -> torch.Tensor:
    """(D, D): centred features (N, D) times this are uncorrelated, of deviation 1 where the penalty does not outweigh them."""
    covariance = standard.double().T @ standard.double() / len(standard)
    variances, directions = torch.linalg.eigh(covariance)
    return (directions * (variances.clamp(min=0) + penalty + 1e-9).rsqrt()).float()
