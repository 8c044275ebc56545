"""Whether a pair of arms varies more over the seeds than the others of its pool, whose common spread it is tested by."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlm_lab.statistics.blocks import Blocks, Estimate
from mlm_lab.statistics.student import upper_f_p


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A pair's spread beside that of the rest of its pool."""

    ratio: float
    """Of the two standard deviations of a run about its arm and its seed."""
    p: float
    """One-sided (F): of a ratio at least as large where the two are alike."""


def spread_beside_pool(own: Estimate, n: int, pool: Blocks) -> Spread | None:
    """The pair's differences are a part of the pool's residuals, and orthogonal to the rest of them: what the pool has besides is the rest.

    own: from the pair's differences alone, over n seeds. None where the pool has nothing besides.
    """
    of_pair = own.standard_error**2 * n / 2
    freedom = pool.degrees_of_freedom - own.degrees_of_freedom
    if freedom < 1:
        return None
    rest = max(pool.std**2 * pool.degrees_of_freedom - of_pair * own.degrees_of_freedom, 0.0) / freedom
    ratio = of_pair / rest if rest > 0 else math.inf
    return Spread(ratio=math.sqrt(ratio), p=upper_f_p(ratio, own.degrees_of_freedom, freedom))
