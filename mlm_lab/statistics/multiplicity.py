"""Many contrasts, one error rate: Holm's step-down p values (Scandinavian Journal of Statistics 1979).

Own code: scipy has the false discovery rate alone, and statsmodels, which the tests hold this to, is no core requirement.
"""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values in the order given: at most `alpha` where the family-wise error rate is held at `alpha`."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for step, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[index]))
        adjusted[index] = largest
    return adjusted
