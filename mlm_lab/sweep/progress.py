"""How far a run is, read from its folder while another process writes it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any, NamedTuple

from mlm_lab.errors import UserError
from mlm_lab.run_folder import RunFolder


class Progress(NamedTuple):
    """steps of budget_steps (None before the first start froze it), and the last value of each metric."""

    steps: int
    budget_steps: int | None
    metrics: Mapping[str, float]


def progress_of(folder: RunFolder) -> Progress:
    """From summary.json where the run has ended, else from metrics.csv, to which rows are added as it goes."""
    summary = summary_of(folder)
    rows = rows_of(folder)
    latest: dict[str, float] = {}
    for row in rows:
        latest |= row
    latest |= {name: value for name, value in (summary.get("metrics") or {}).items() if isinstance(value, int | float)}
    done = summary.get("steps") if summary.get("status") == "finished" else None
    return Progress(int(done or latest.get("step", 0)), summary.get("budget_steps"), latest)


def rows_of(folder: RunFolder) -> list[dict[str, float]]:
    """The rows of metrics.csv, empty cells left out. A row that is being written just now is left out too."""
    try:
        with folder.metrics_csv.open(newline="", encoding="utf-8") as file:
            return [{name: float(value) for name, value in row.items() if name and value} for row in csv.DictReader(file)]
    except (FileNotFoundError, ValueError):
        return []


def history_of(folder: RunFolder, metric: str) -> list[float]:
    """Every value of a metric so far, in the order of the steps."""
    return [row[metric] for row in rows_of(folder) if metric in row]


def metric_of(summary: Mapping[str, Any], metric: str) -> float | None:
    """A finished run's value: of `metrics`, or TASK/METRIC of its evaluation (the mean over fine-tuning seeds). None where it has none."""
    value = (summary.get("metrics") or {}).get(metric)
    if value is None:
        task, _, name = metric.partition("/")
        value = (((summary.get("evaluation") or {}).get(task) or {}).get(name) or {}).get("mean")
    return None if value is None else float(value)


def summary_of(folder: RunFolder) -> dict[str, Any]:
    """summary.json; {} where there is none or it is damaged."""
    try:
        return folder.read_summary()
    except UserError:
        return {}
