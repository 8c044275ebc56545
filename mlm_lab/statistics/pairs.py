"""An arm beside the baseline before any test: what both have, the estimate of their difference, and what stands in the way of one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mlm_lab.statistics.blocks import Blocks, Estimate, fit_blocks
from mlm_lab.statistics.scores import Scores, common_seeds, counted, undefined_seeds
from mlm_lab.statistics.verdict import BETTER, EQUIVALENT, WORSE

FEWEST_SEEDS = 2
"""Common seeds from which two arms are compared: one run says nothing about the next, whatever the other arms' spread."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One arm and the baseline."""

    arm: str
    seeds: tuple[int, ...]
    """That both have."""
    differences: tuple[float, ...] | None
    """Arm minus baseline for each of them; None where a score is undefined."""
    estimate: Estimate | None
    own: Estimate | None
    """The same from the pair's differences alone; None without an estimate."""
    blocks: Blocks | None
    """The fit that the estimate is of: all arms of the pool, or this pair alone."""
    pooled: bool
    reason: str | None
    """Why there is no estimate."""
    barred: frozenset[str]
    """Verdicts that this pair may not have."""
    because: str | None


def pair_up(scores: Scores, baseline: str, excluded: Mapping[str, str]) -> tuple[Pair, ...]:
    """Every other arm with the baseline, in the order of the scores.

    Arms of the pool share one spread. An arm out of it is compared by its own differences from the baseline; where it is the baseline that
    is out of it, every arm is.
    """
    pool = {arm: of_arm for arm, of_arm in scores.items() if of_arm and arm not in excluded}
    shared = fit_blocks(pool, baseline) if baseline in pool else None
    return tuple(_pair(arm, scores, baseline, excluded, shared) for arm in scores if arm != baseline)


def _pair(arm: str, scores: Scores, baseline: str, excluded: Mapping[str, str], shared: Blocks | None) -> Pair:
    ours, theirs = scores[arm], scores[baseline]
    seeds = common_seeds(ours, theirs)
    undefined = bool(undefined_seeds(ours) or undefined_seeds(theirs))
    reason = _reason(ours, theirs, len(seeds))
    pooled = shared is not None and arm not in excluded
    blocks = alone = None
    if reason is None:
        alone = fit_blocks({baseline: theirs, arm: ours}, baseline)
        blocks = shared if pooled else alone
        if blocks.std == 0:
            blocks, reason = None, "the scores do not vary over seeds"
    barred, because = _barred(excluded.get(arm), excluded.get(baseline))
    return Pair(
        arm=arm,
        seeds=tuple(seeds),
        differences=None if undefined else tuple(ours[seed] - theirs[seed] for seed in seeds),
        estimate=blocks.estimates[arm] if blocks else None,
        own=alone.estimates[arm] if blocks else None,
        blocks=blocks,
        pooled=pooled and blocks is not None,
        reason=reason,
        barred=barred,
        because=because,
    )


def _reason(ours: Mapping[int, float | None], theirs: Mapping[int, float | None], common: int) -> str | None:
    for whose, of_arm in (("the baseline", theirs), ("the arm", ours)):
        if not of_arm:
            return f"{whose} has no scores"
        if seeds := undefined_seeds(of_arm):
            return f"{whose} has no defined score with seed {', '.join(map(str, seeds))}"
    if common < FEWEST_SEEDS:
        return counted(common, "common seed")
    return None


def _barred(arm: str | None, baseline: str | None) -> tuple[frozenset[str], str | None]:
    """Neither an arm nor a baseline whose spread is between two states comes out the better, or as good."""
    barred = ({BETTER, EQUIVALENT} if arm else set()) | ({WORSE, EQUIVALENT} if baseline else set())
    told = [arm, f"the baseline: {baseline}" if baseline else None]
    return frozenset(barred), "; ".join(filter(None, told)) or None


def mean_difference(pair: Pair) -> float | None:
    """Of the common seeds; None where there are none, or a score is undefined."""
    return math.fsum(pair.differences) / len(pair.differences) if pair.differences else None
