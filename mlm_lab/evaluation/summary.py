"""Many seeds as a few numbers (traps.md 33, 34): what goes into summary.json, and the table that a person reads.

No seed is left out for its outcome: collapsed runs count and are flagged; failed ones have no number and are counted as failures.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from mlm_lab.evaluation.protocol import PROTOCOLS

Cells = Mapping[int, dict]
"""seed -> a cell's record: status, metrics, collapsed, ..."""


NO_METRIC = "none"
"""Stands for the metrics of a task of which every cell failed, so that its row shows it."""


def describe(values: Sequence[float | None]) -> dict:
    """n, mean, standard deviation (n - 1), median, values. An undefined value (None) makes mean, deviation and median undefined."""
    known = bool(values) and None not in values
    return {
        "n": len(values),
        "mean": statistics.fmean(values) if known else None,
        "std": statistics.stdev(values) if known and len(values) > 1 else None,
        "median": statistics.median(values) if known else None,
        "values": list(values),
    }


def summarise(
    pretrained: Cells, floor: Cells, baselines: Mapping[str, Mapping[str, float]], protocol: str, within: str = ""
) -> dict[str, dict]:
    """metric -> the numbers of all seeds, with the floor's and the difference of the means beside them, for one task.

    protocol: how the setting was found, which is said beside every number. within: `Task.ranked_within`, with spaces between.
    """
    names = next((list(cell["metrics"]) for cell in (*pretrained.values(), *floor.values()) if cell["status"] == "finished"), [NO_METRIC])
    result = {}
    for name in names:
        entry = {**_of_start(pretrained, name), "protocol": protocol, **({"within": within} if within else {})}
        if floor:
            entry["floor"] = _of_start(floor, name)
            entry["above_floor"] = _difference(entry["mean"], entry["floor"]["mean"])
        if any(name in values for values in baselines.values()):
            entry["baselines"] = {method: values[name] for method, values in baselines.items() if name in values}
        result[name] = entry
    return result


def _of_start(cells: Cells, name: str) -> dict:
    finished = {seed: cell for seed, cell in cells.items() if cell["status"] == "finished"}
    return {
        **describe([cell["metrics"][name] for cell in finished.values()]),
        "seeds": list(finished),
        "collapsed": [seed for seed, cell in finished.items() if cell["collapsed"]],
        "failed": [seed for seed, cell in cells.items() if cell["status"] != "finished"],
    }


def _difference(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours - theirs


COLUMNS = ("task", "metric", "n", "pretrained", "median", "random start", "above it", "baseline")


def note(protocol: str, evaluation: Mapping[str, Mapping[str, dict]]) -> str:
    """How the table of these results is to be read."""
    has_floor = any(entry.get("floor") for metrics in evaluation.values() for entry in metrics.values())
    return (
        "mean ± standard deviation over fine-tuning seeds of one pretraining run: how another pretraining run comes out, it does not say.\n"
        + "random start: over three initialisations. " * has_floor
        + "All on dev; test/ is shown beside it.\n"
        + f"protocol {protocol}: {PROTOCOLS[protocol]}"
    )


def table_rows(evaluation: Mapping[str, Mapping[str, dict]]) -> list[list[str]]:
    """The rows of the result table, one for each task and metric."""
    rows = []
    for task, metrics in evaluation.items():
        for name, entry in metrics.items():
            floor = entry.get("floor")
            baselines = "  ".join(f"{method} {value:.3f}" for method, value in entry.get("baselines", {}).items())
            rows.append(
                [
                    task,
                    name,
                    _count(entry),
                    _spread(entry),
                    _number(entry["median"]),
                    _spread(floor) if floor else "-",
                    _number(entry.get("above_floor"), sign="+"),
                    baselines or "-",
                ]
            )
    return rows


def flags(task: str, metrics: Mapping[str, dict]) -> list[str]:
    """A line for each start whose runs collapsed or failed."""
    lines = []
    entry = next(iter(metrics.values()), {})
    for start, cells in (("pretrained", entry), ("random start", entry.get("floor", {}))):
        if cells.get("collapsed"):
            lines.append(f"{task}, {start}: constant predictions with seed {_listing(cells['collapsed'])} (kept in the mean)")
        if cells.get("failed"):
            lines.append(f"{task}, {start}: failed with seed {_listing(cells['failed'])} (no number, not in the mean)")
    return lines


def _listing(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _count(entry: Mapping) -> str:
    marks = [f"{len(entry[state])} {state}" for state in ("collapsed", "failed") if entry.get(state)]
    return f"{entry['n']}" + (f" ({', '.join(marks)})" if marks else "")


def _spread(entry: Mapping) -> str:
    if entry["mean"] is None:
        return "undefined" if entry["n"] else "-"
    return f"{entry['mean']:.3f}" + ("" if entry["std"] is None else f" ± {entry['std']:.3f}")


def _number(value: float | None, sign: str = "") -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:{sign}.3f}"
