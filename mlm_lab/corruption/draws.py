"""Counter-based random draws: a number is a function of (seed, split, epoch, index, stream, slot) and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Draws:
    """The draws of a split of a run."""

    seed: int
    split: str
    horizon: int | None = None
    """Examples in the whole run, for ratios that follow a schedule (position / horizon); None where there is no run."""
    epoch: int = 0
    """For draws that belong to an epoch as a whole (its order, its plan), not to an example."""

    def uniform(self, epoch: np.ndarray, index: np.ndarray, stream: str, slots: int) -> np.ndarray:
        """(B, slots) float64 in [0, 1), for the examples (epoch[b], index[b]) and the purpose named by stream."""
        raise NotImplementedError
