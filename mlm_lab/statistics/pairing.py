"""What pairing by seed gained: how much of the scores' spread two arms have in common."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from mlm_lab.statistics.blocks import ROUNDING

FEWEST_SEEDS = 3
"""Two points always lie on a line."""


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """correlation: of the two arms' scores over common seeds. gain: variance of the unpaired difference over that of the paired one, the
    factor by which an unpaired study needs more seeds; below 1, pairing lost. None where it cannot be told."""

    correlation: float | None
    gain: float | None


def pairing(arm: Mapping[int, float], baseline: Mapping[int, float]) -> Pairing:
    """Over the seeds that both have; every score finite."""
    pairs = [(value, baseline[seed]) for seed, value in arm.items() if seed in baseline]
    if len(pairs) < FEWEST_SEEDS:
        return Pairing(correlation=None, gain=None)
    ours, theirs = zip(*pairs, strict=True)
    variances = statistics.variance(ours), statistics.variance(theirs)
    paired = statistics.variance([a - b for a, b in pairs])
    none = (ROUNDING * max(map(abs, (*ours, *theirs)))) ** 2
    return Pairing(
        correlation=statistics.correlation(ours, theirs) if min(variances) > none else None,
        gain=sum(variances) / paired if paired > none else None,
    )
