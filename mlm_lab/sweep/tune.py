"""Fair arms: each gets its own value of one key (its peak learning rate), chosen on short runs with a seed that no test uses.

    arm x value -> short runs, at a share of the budget -> the best value of each arm -> its points once more, beside the common-rate ones

An arm whose best value is the one it has anyway shares its runs: they stand in both tables. What the choice cost is counted (tune.json).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlm_lab.report.records import TUNE_JSON, TUNED_ALIKE, merge_tunes, part_of, read_tune, total_cost
from mlm_lab.run_config import to_dict
from mlm_lab.sweep.points import Point, spell
from mlm_lab.sweep.progress import metric_of, summary_of
from mlm_lab.sweep.records import Records
from mlm_lab.sweep.sweep_file import Tune
from mlm_lab.training.budget import BUDGETS

STUDY_SUFFIX = ".tuning"


def trials(tune: Tune, points: Sequence[Point]) -> dict[str, dict[str, Point]]:
    """arm -> value, as it is spelt -> the short run that tries it."""
    first = {point.arm: point for point in reversed(points)}
    return {arm: {spell(value): _trial(tune, first[arm], value) for value in tune.values} for arm in dict.fromkeys(p.arm for p in points)}


def _trial(tune: Tune, point: Point, value: Any) -> Point:
    config = point.config
    budget = to_dict(config)["budget"]
    name = next(name for name in BUDGETS if budget[name] is not None)
    share = budget[name] * tune.budget_share
    words = [f"{tune.key}={spell(value)}", f"seed={tune.seed}", f"study={config.study}{STUDY_SUFFIX}"]
    words.append(f"budget.{name}={max(1, round(share)) if name in ('steps', 'tokens') else share}")
    if tune.metric.partition("/")[0] not in config.tasks:  # what it is compared by is measured in pretraining
        words.append("stages=[" + ",".join(stage for stage in config.stages if stage != "evaluate") + "]")
    return replace(point, values={**point.values, tune.key: value}, overrides=(*point.overrides, *words), seed=tune.seed, tuned=words[0])


def common_value(tune: Tune, point: Point) -> Any:
    """What the point has at the key that is tuned."""
    found: Any = to_dict(point.config)
    for part in tune.key.split("."):
        found = found[part]
    return found


def chosen_before(
    settings: Tune, points: Sequence[Point], experiment: Path, tried: Mapping[str, Mapping[str, Point]]
) -> dict[str, Any] | None:
    """What experiments/NAME/tune.json holds of the arms, if chosen alike, that it has a score of each of these short runs of: their folders
    may be gone. None where there is no such arm."""
    known = read_tune(experiment)
    if known is None or any(known.get(name) != value for name, value in _asked(settings).items()):
        return None
    found = {arm: known["arms"][arm] for arm, of_arm in tried.items() if _has_all(known["arms"].get(arm), of_arm)}
    common = _common(settings, points, found)
    arms = {arm: {**of_arm, "shared": _is_same(of_arm["best"], common[arm])} for arm, of_arm in found.items()}
    return part_of(known, common, arms) if arms else None


def _has_all(found: Mapping[str, Any] | None, of_arm: Mapping[str, Point]) -> bool:
    runs = [trial.config_hash for trial in of_arm.values()]
    return found is not None and found.get("runs") == runs and None not in (found.get("scores") or {"": None}).values()


def choose(tune: Tune, points: Sequence[Point], tried: Mapping[str, Mapping[str, Point]]) -> dict[str, Any]:
    """What tune.json holds, from the finished short runs. A value whose run failed or diverged is not chosen."""
    sign = 1 if tune.goal == "minimize" else -1
    common, arms = _common(tune, points, tried), {}
    for arm, of_arm in tried.items():
        summaries = {value: summary_of(trial.folder) for value, trial in of_arm.items()}
        scores = {value: _score(summary, tune.metric) for value, summary in summaries.items()}
        known = [value for value, score in scores.items() if score is not None]
        best = min(known, key=lambda value: sign * scores[value], default=None)
        arms[arm] = {
            "best": next((value for value in tune.values if spell(value) == best), None),
            "shared": best is not None and _is_same(best, common[arm]),
            "scores": scores,
            "runs": [trial.config_hash for trial in of_arm.values()],
            "cost": _cost(list(summaries.values())),
        }
    return {**_asked(tune), "common": common, "arms": arms, "cost": total_cost(arms)}


def _score(summary: Mapping[str, Any], metric: str) -> float | None:
    """None where the short run is not finished, or has no such number."""
    score = metric_of(summary, metric) if summary.get("status") == "finished" else None
    return score if score is not None and math.isfinite(score) else None


def _common(tune: Tune, points: Sequence[Point], arms: Iterable[str]) -> dict[str, Any]:
    first = {point.arm: point for point in reversed(points)}
    return {arm: common_value(tune, first[arm]) for arm in arms}


def record(records: Records, chosen: Mapping[str, Any]) -> None:
    """Write tune.json. Arms that it has of an earlier call, tuned in the same way, stay."""
    known = read_tune(records.path)
    records.write_json(TUNE_JSON, merge_tunes(chosen, known) if known is not None else chosen)


def tuned_points(chosen: Mapping[str, Any], points: Sequence[Point]) -> list[Point]:
    """The points with their arm's own value. Where it is the common one, the point itself, which so stands in both tables."""
    found = []
    for point in points:
        best = chosen["arms"][point.arm]["best"]
        if best is None:
            continue
        word = f"{chosen['key']}={spell(best)}"
        words = () if chosen["arms"][point.arm]["shared"] else (word,)
        found.append(replace(point, overrides=(*point.overrides, *words), tuned=word))
    return found


def _asked(settings: Tune) -> dict[str, Any]:
    return {name: list(value) if isinstance(value := getattr(settings, name), tuple) else value for name in TUNED_ALIKE}


def _is_same(best: Any, common: Any) -> bool:
    try:
        return float(best) == float(common)
    except (TypeError, ValueError):
        return spell(best) == spell(common)


def _cost(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What the short runs took in all, failed ones too as far as they got."""
    return {
        "runs": sum(bool(summary) for summary in summaries),
        "tokens": sum(summary.get("tokens") or 0 for summary in summaries),
        "flops": sum((summary.get("flops") or {}).get("total") or 0 for summary in summaries),
        "seconds": sum(summary.get("seconds") or 0 for summary in summaries),
    }
