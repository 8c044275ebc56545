"""Equivalence within a margin: two one-sided t tests (Schuirmann, J. Pharmacokinetics and Biopharmaceutics 1987).

No difference found is no sign that there is none; this test asks for the evidence.
"""

from __future__ import annotations

from mlm_lab.statistics.blocks import Estimate
from mlm_lab.statistics.student import upper_p


def equivalence_p(estimate: Estimate, margin: float) -> float:
    """p of the hypothesis that the difference is at least `margin` either way. ValueError unless margin and standard error are above zero.

    Below alpha exactly where the interval of level 1 - 2 alpha lies within the margin.
    """
    if not (margin > 0 and estimate.standard_error > 0):
        raise ValueError(f"margin {margin}, standard error {estimate.standard_error}")
    room = margin - abs(estimate.difference)
    return upper_p(room / estimate.standard_error, estimate.degrees_of_freedom)
