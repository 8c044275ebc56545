"""Runs that did not leave the unigram plateau: an endpoint of their own, k of n with an exact interval.

The main table keeps every run; a second one keeps the escaped, which is a selection on the outcome and is named so. The same counts serve
collapsed fine-tunings, or any other state that a run can end in.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlm_lab.statistics.proportions import Proportion, proportion
from mlm_lab.statistics.scores import Scores

Flags = Mapping[str, Mapping[int, bool | None]]
"""arm -> seed -> whether the run is well (it left the plateau); None where it is not known."""


def shares(flags: Flags, level: float = 0.95) -> dict[str, Proportion]:
    """arm -> runs that are well, of those of which it is known."""
    return {arm: proportion(*_counts(of_arm), level) for arm, of_arm in flags.items()}


def reasons(flags: Flags, told: str = "did not leave the plateau") -> dict[str, str]:
    """Arms with a run that is not well -> how many, in words, for `excluded_from_pool`."""
    counts = {arm: _counts(of_arm) for arm, of_arm in flags.items()}
    return {arm: f"{n - k} of {n} runs {told}" for arm, (k, n) in counts.items() if k < n}


def only_well(scores: Scores, flags: Flags) -> dict[str, dict[int, float | None]]:
    """Scores of the runs that are well, or of which it is not known: the second table."""
    return {
        arm: {seed: value for seed, value in of_arm.items() if flags.get(arm, {}).get(seed) is not False} for arm, of_arm in scores.items()
    }


def _counts(of_arm: Mapping[int, bool | None]) -> tuple[int, int]:
    known = [flag for flag in of_arm.values() if flag is not None]
    return sum(known), len(known)
