"""The mask ratio of each example: constant, uniform between two bounds, or a course over the run from one bound to the other.

    position / horizon -> share of the way from mask_ratio to final_mask_ratio -> ratio        (B,) each

A course depends on the example's number in the run alone, not on when a worker makes it (Yang et al. 2023, "Learning Better Masking for
Better Language Model Pre-training", decay by linear and cosine courses). uniform is the forward process of masked diffusion (Sahoo et
al. 2024; Nie et al. 2025), without its weight of 1 / ratio on the loss.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlm_lab.corruption.draws import Draws

UNIFORM = "uniform"
COURSES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "constant": np.zeros_like,
    "linear": lambda gone: gone,
    "cosine": lambda gone: (1 - np.cos(np.pi * gone)) / 2,
    "step": lambda gone: (gone >= 0.5).astype(np.float64),
}
"""schedule -> (share of the run that is gone -> share of the way from the first ratio to the last), (B,) each."""
MASK_SCHEDULES = (*COURSES, UNIFORM)


def scheduled_ratios(
    mask_schedule: str,
    first: float,
    last: float,
    draws: Draws,
    position: np.ndarray,
    epoch: np.ndarray,
    index: np.ndarray,
) -> np.ndarray:
    """(B,) float64 ratios, each between first and last.

    position: (B,) numbers of the examples in the run of draws.horizon examples. Where there is no run (held-out text) a course is at its
    end, so that every run and every step is measured at the same ratio. epoch, index: (B,) keys of the uniform draw.
    """
    if mask_schedule == UNIFORM:
        share = draws.uniform(epoch, index, "mask ratio", 1)[:, 0]
    else:
        gone = np.minimum(position / draws.horizon, 1.0) if draws.horizon else np.ones(len(position))
        share = COURSES[mask_schedule](gone)
    return np.clip(first + (last - first) * share, min(first, last), max(first, last))
