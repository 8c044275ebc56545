"""The state of a sweep while it runs: a table that is redrawn on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence

from mlm_lab import console
from mlm_lab.sweep.progress import Progress, metric_of, progress_of, summary_of
from mlm_lab.sweep.runner import ELSEWHERE, FAILED, FINISHED, INTERRUPTED, LOOK_SECONDS, RUNNING, STOPPED, WAITING, Job

ORDER = (RUNNING, INTERRUPTED, FAILED, ELSEWHERE, STOPPED, FINISHED, WAITING)
"""What is shown first where the terminal has no room for all."""
FRAME_LINES = 9
"""Lines of a terminal that are not rows of the table."""


class Display:
    """Shows jobs. Called very often; looks at run folders once a second.

    metric: what is shown beside each job. total: how many there will be. at_once: how many run at a time. draw: redraws the table
    (console.live_table); None: plain lines.
    """

    def __init__(self, title: str, metric: str, total: int, at_once: int, draw: Callable[..., None] | None):
        self._title, self._metric, self._total, self._at_once, self._draw = title, metric, total, at_once, draw
        self._said: dict[int, str] = {}
        self._progress: dict[int, Progress] = {}
        self._values: dict[int, float | None] = {}
        self._looked = 0.0

    def show(self, jobs: Sequence[Job]) -> None:
        changed = [job for job in jobs if self._said.get(id(job)) != _said(job)]
        self._said |= {id(job): _said(job) for job in changed}
        for job in changed:
            self._progress[id(job)] = progress_of(job.point.folder)
            if job.state == FINISHED:
                self._values[id(job)] = metric_of(summary_of(job.point.folder), self._metric)
        if self._draw is None:
            for job in changed:
                self._tell(job, jobs)
        elif changed or time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked = time.monotonic()
            self._progress |= {id(job): progress_of(job.point.folder) for job in jobs if job.state in (RUNNING, ELSEWHERE)}
            rows = [self._row(job) for job in _fitting(jobs, shutil.get_terminal_size().lines - FRAME_LINES)]
            self._draw(self._title, ("arm", "seed", "state", "steps", self._metric, "time"), rows, self.note(jobs))

    def note(self, jobs: Sequence[Job]) -> str:
        """3 finished, 2 running, 19 waiting; about 12:30 left"""
        counts = Counter(job.state for job in jobs)
        words = [
            f"{counts[state]} {state}" for state in (FINISHED, RUNNING, ELSEWHERE, INTERRUPTED, STOPPED, FAILED, WAITING) if counts[state]
        ]
        left = self._seconds_left(jobs)
        return ", ".join(words) + (f"; about {console.duration(left)} left" if left is not None else "")

    def _seconds_left(self, jobs: Sequence[Job]) -> float | None:
        """By the mean of those that this call has finished."""
        done = [job.seconds for job in jobs if job.state == FINISHED and job.seconds is not None]
        spent = [min(time.monotonic() - job.started, statistics.fmean(done)) for job in jobs if job.state == RUNNING] if done else []
        left = len(spent) + sum(job.state == WAITING for job in jobs) + self._total - len(jobs)
        return (left * statistics.fmean(done) - sum(spent)) / min(self._at_once, left) if done and left else None

    def _row(self, job: Job) -> tuple[object, ...]:
        progress = self._progress.get(id(job))
        steps = f"{progress.steps:,}/{progress.budget_steps:,}" if progress is not None and progress.budget_steps else ""
        value = self._values.get(id(job)) if job.state == FINISHED else progress.metrics.get(self._metric) if progress else None
        seconds = time.monotonic() - job.started if job.state == RUNNING else job.seconds
        state = f"{job.state} before" if job.skipped else job.state
        arm = " ".join(word for word in (job.point.arm, job.point.tuned) if word)
        return arm, job.point.seed, state, steps, value, "" if seconds is None else console.duration(seconds)

    def _tell(self, job: Job, jobs: Sequence[Job]) -> None:
        """A line. What waits is not said, and of what was finished before only the number."""
        if job.state == WAITING or (job.skipped and job.state == FINISHED):
            return
        number = f"[{sum(other.is_settled for other in jobs)}/{self._total}]"
        value = self._values.get(id(job))
        words = {
            RUNNING: "started" + (f" on cores {','.join(map(str, job.slot.cpus))}" if job.slot and job.slot.cpus else ""),
            FINISHED: f"finished in {console.duration(job.seconds or 0.0)}"
            + (f", {self._metric} {value:.4g}" if value is not None else ""),
            ELSEWHERE: f"is worked on by {job.note}",
            STOPPED: "stopped early",
            INTERRUPTED: "interrupted",
            FAILED: f"FAILED: {job.note}",
        }
        console.say(f"{number} {job.name}: {words[job.state]}")


def _said(job: Job) -> str:
    return f"{job.state} {job.note}"


def _fitting(jobs: Sequence[Job], lines: int) -> list[Job]:
    """As many as the terminal has lines for, in the sweep's order; finished ones leave first by their age."""
    if len(jobs) <= lines:
        return list(jobs)
    ranked = sorted(range(len(jobs)), key=lambda i: (ORDER.index(jobs[i].state), -i if jobs[i].state == FINISHED else i))
    kept = set(ranked[: max(lines, 1)])
    return [job for i, job in enumerate(jobs) if i in kept]
