"""How a run came out, beside its score: on the plateau, collapsed, failed; and what that keeps an arm's comparison from saying.

A run without a number is missing from an arm's scores for what it computed (it diverged: an outcome, which the arm's other runs must not be
tested without, traps.md 33) or for a reason outside of that (a full disk, memory: it says nothing about the arm).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlm_lab.errors import OUTSIDE
from mlm_lab.report.gather import FAILED
from mlm_lab.report.rows import Row, flag, number

_TOLD = ("UserError: ", "error: ", "OSError: ", "MemoryError", "OutOfMemoryError: ", "torch.OutOfMemoryError: ")
_NOT_FINITE = "not finite"
"""How errors begin that are no outcome, and what the one says that is; for runs that were recorded before `failure` was."""

_NO_METRIC = "none"
"""The metric of a task of which every fine-tuning failed (evaluation/summary.py)."""


def failed_by_itself(row: Row) -> bool:
    """Whether the run has no number for what it computed. One of which nobody knows why it failed is taken for one."""
    if row.get("status") != FAILED:
        return False
    if "failure" in row:
        return row["failure"] != OUTSIDE
    error = row.get("error", "")
    return _NOT_FINITE in error or not error.startswith(_TOLD)


def failed_cells(row: Row, metric: str) -> int:
    """Of the run's fine-tunings on the metric's task, how many came to no number."""
    names = (metric, f"{metric.partition('/')[0]}/{_NO_METRIC}")  # the second where not one of them has a number
    return next((round(failed) for name in names if (failed := number(row, f"{name}/failed")) is not None), 0)


def is_flagged(row: Row, metric: str) -> bool:
    """Whether the run stayed on the plateau, or a fine-tuning of it collapsed or failed on this metric's task."""
    return flag(row, "left_plateau") is False or bool(number(row, f"{metric}/collapsed")) or failed_cells(row, metric) > 0


def seed_of(row: Mapping[str, str]) -> int:
    """The pretraining seed; a run without one is its own block, told by its hash."""
    return int(row["seed"]) if row.get("seed", "").isdigit() else int(row["config_hash"][:12], 16)


def reasons(metric: str, finished: Sequence[Row], failed: Sequence[Row]) -> str | None:
    """Why an arm's scores of a metric are not those of all of its runs, or not of one state; None where they are.

    finished: the arm's runs that have a number. failed: those that failed by themselves.
    """
    collapsed = [bool(count) for row in finished if (count := number(row, f"{metric}/collapsed")) is not None]
    tuned = [failed_cells(row, metric) > 0 for row in finished if f"{metric}/n" in row or failed_cells(row, metric)]
    told = [
        (len(failed), len(finished) + len(failed), "failed"),
        (sum(collapsed), len(collapsed), "collapsed"),
        (sum(tuned), len(tuned), "with a failed fine-tuning"),
    ]
    return ", ".join(f"{k} of {n} runs {what}" for k, n, what in told if k) or None
