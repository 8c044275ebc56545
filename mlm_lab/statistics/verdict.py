"""The words of a contrast. A table that sets the best in bold says more than its seeds can; these say what was shown, or could have been.

- `better`, `worse`: the difference is told from zero at the level, and not shown to be within the margin.
- `equivalent within d`: the difference is shown to be smaller than the margin d either way. Comes first: a difference that does not matter
  is not `better` for being measured well.
- `not resolved: n seeds could have shown a difference of x`: neither; x would have been shown four times in five.
- `not compared: ...`: there is nothing to test with (one seed, an undefined score), or the test would speak for an arm that did not train.
"""

from __future__ import annotations

from collections.abc import Collection

BETTER, WORSE, EQUIVALENT = "better", "worse", "equivalent"


def verdict(
    *,
    difference: float,
    p: float,
    equivalence_p: float | None,
    margin: float | None,
    higher_is_better: bool,
    alpha: float,
    n: int,
    detectable: float,
    barred: Collection[str] = (),
    because: str | None = None,
) -> str:
    """The words for one contrast.

    Args:
        p: adjusted as its family asks; `equivalence_p` likewise.
        alpha: the error rate, 1 - level.
        n: seeds; `detectable` is what they could have shown.
        barred: of better, worse, equivalent: what may not be said of this pair, for the reason `because`.
    """
    if equivalence_p is not None and equivalence_p < alpha:
        found, words = EQUIVALENT, f"equivalent within {margin:g}"
    elif p < alpha:
        found = words = BETTER if (difference > 0) == higher_is_better else WORSE
    else:
        return f"not resolved: {n} seeds could have shown a difference of {detectable:.2g}"
    return not_compared(because) if found in barred else words


def not_compared(reason: str | None) -> str:
    """Where no test is made, or none may speak."""
    return f"not compared: {reason}"
