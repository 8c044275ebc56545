"""The averages over GLUE that papers report (traps.md 31). They differ by several points for the same encoder, so each has its name.

nine_columns  BERT's Table 1 (Devlin et al. 2019): nine columns of one metric, MNLI matched and mismatched apart, WNLI left out
eight_tasks   ELECTRA's development sets (Clark et al. 2020): eight tasks of one metric, MNLI matched alone, WNLI left out
official      the leaderboard (Wang et al. 2019): nine tasks, WNLI in; a task of two metrics counts with their mean, MNLI is one task

An average over a part of its columns is none: it is named with what it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from mlm_lab.evaluation.summary import describe

Columns = tuple[tuple[str, ...], ...]
"""Of each column the scores, TASK/METRIC, that are averaged first."""

MATCHED, MISMATCHED = "mnli/accuracy", "mnli/mismatched/accuracy"
ALIKE: Columns = (("cola/matthews",), ("sst2/accuracy",), ("qnli/accuracy",), ("rte/accuracy",))
"""What the three have in common."""
AVERAGES: dict[str, Columns] = {
    "nine_columns": (*ALIKE, ("mrpc/f1",), ("stsb/spearman",), ("qqp/f1",), (MATCHED,), (MISMATCHED,)),
    "eight_tasks": (*ALIKE, ("mrpc/accuracy",), ("stsb/spearman",), ("qqp/accuracy",), (MATCHED,)),
    "official": (
        *ALIKE,
        ("mrpc/f1", "mrpc/accuracy"),
        ("stsb/pearson", "stsb/spearman"),
        ("qqp/f1", "qqp/accuracy"),
        (MATCHED, MISMATCHED),
        ("wnli/accuracy",),
    ),
}
TASKS = frozenset(score.partition("/")[0] for columns in AVERAGES.values() for column in columns for score in column)


def nine_columns(scores: Mapping[str, float]) -> float:
    """BERT's average of nine columns. scores: TASK/METRIC -> value, in any one unit. Raises KeyError where one is missing."""
    return _average(AVERAGES["nine_columns"], scores)


def eight_tasks(scores: Mapping[str, float]) -> float:
    """ELECTRA's average of eight tasks, likewise."""
    return _average(AVERAGES["eight_tasks"], scores)


def official(scores: Mapping[str, float]) -> float:
    """The leaderboard's average of nine tasks, likewise."""
    return _average(AVERAGES["official"], scores)


def _average(columns: Columns, scores: Mapping[str, float]) -> float:
    return fmean(fmean(scores[name] for name in column) for column in columns)


def average_all(results: Mapping[str, Mapping[str, dict]]) -> tuple[dict[str, dict], dict[str, list[str]]]:
    """Each average for each seed, where every score that it needs has a number for the same seeds.

    Args:
        results: task -> metric -> numbers of all seeds (evaluation/summary.py).

    Returns:
        average -> its numbers, with those of the floor beside them where it is whole too; average -> the scores that it lacks.
    """
    scores = {f"{task}/{metric}": entry for task, metrics in results.items() for metric, entry in metrics.items()}
    whole, lacking = {}, {}
    for name, columns in AVERAGES.items():
        entry, missing = _of_seeds(columns, scores)
        if missing:
            lacking[name] = missing
            continue
        floor, _ = _of_seeds(columns, {score: values["floor"] for score, values in scores.items() if "floor" in values})
        whole[name] = entry | ({"floor": floor} if floor else {})
    return whole, lacking


def _of_seeds(columns: Columns, scores: Mapping[str, dict]) -> tuple[dict, list[str]]:
    names = [name for column in columns for name in column]
    seeds = next((scores[name]["seeds"] for name in names if name in scores), [])
    missing = [name for name in names if name not in scores or scores[name]["seeds"] != seeds or None in scores[name]["values"]]
    if missing or not seeds:
        return {}, missing
    values = [_average(columns, {name: scores[name]["values"][i] for name in names}) for i in range(len(seeds))]
    return {**describe(values), "seeds": list(seeds)}, []
