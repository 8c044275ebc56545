"""Whether a pair of arms varies more over the seeds than the other arms, by whose common spread it is tested."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlm_lab.statistics.blocks import Estimate, fit_blocks
from mlm_lab.statistics.scores import Scores
from mlm_lab.statistics.student import upper_f_p


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A pair's spread beside that of the others."""

    ratio: float
    """Of the two standard deviations of a run about its arm and its seed."""
    p: float
    """One-sided (F): of a ratio at least as large where the two are alike."""


def spread_beside(others: Scores, own: Estimate, n: int) -> Spread | None:
    """The others are neither the arm nor the baseline, so that neither's spread is on both sides.

    own: from the pair's differences alone, over n seeds. None where fewer than two others have a spread about arm and seed.
    """
    fit = fit_blocks(others, next(iter(others))) if len(others) > 1 else None
    if fit is None or fit.degrees_of_freedom < 1:
        return None
    of_pair = own.standard_error**2 * n / 2
    ratio = of_pair / fit.std**2 if fit.std > 0 else math.inf
    return Spread(ratio=math.sqrt(ratio), p=upper_f_p(ratio, own.degrees_of_freedom, fit.degrees_of_freedom))
