"""Run points on this machine, each as a process of its own (`python -m mlm_lab ...`), so many at a time:

    waiting -> running -> finished                      a point that is finished already is skipped, an interrupted one goes on
                       -> failed                        its last lines are recorded, and the rest carries on
                       -> stopped early                 a search has seen enough of it
    elsewhere                                           another runner, machine or agent works on it: looked at again every second

What has happened stands in the run folders and nowhere else. So this process may be killed at any moment: the points' processes end with it
(on Linux at once, each with a checkpoint; elsewhere they go on, and their claims show it), and the same command goes on from there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

from mlm_lab import runner as run_door
from mlm_lab.errors import Claimed, Interrupted, UserError
from mlm_lab.sweep.points import Point
from mlm_lab.sweep.records import Held, Records, last_lines
from mlm_lab.sweep.slots import Slot, share_out

WAITING, RUNNING, ELSEWHERE, INTERRUPTED = "waiting", "running", "elsewhere", "interrupted"
FINISHED, FAILED, STOPPED = "finished", "failed", "stopped early"
POLL_SECONDS = 0.1
LOOK_SECONDS = 1.0
"""Between two looks at what does not tell by itself: other machines' runs, a running point's metrics."""
STOPPED_CODES = (128 + signal.SIGINT, 128 + signal.SIGTERM)


@dataclass
class Job:
    """A point on its way."""

    point: Point
    state: str = WAITING
    note: str = ""
    """One line for people: why it failed, who works on it."""
    skipped: bool = False
    """Whether it was finished before this call."""
    seconds: float | None = None
    """Of the process of this call."""
    process: subprocess.Popen | None = None
    slot: Slot | None = None
    started: float = 0.0
    looked: float = 0.0
    log_start: int = 0
    asked_to_stop: bool = False
    memory: dict[str, Any] = field(default_factory=dict)
    """What a source keeps with the job."""

    @property
    def name(self) -> str:
        words = [self.point.arm, self.point.tuned or "", "" if self.point.seed is None else f"seed={self.point.seed}"]
        return " ".join(word for word in words if word)

    @property
    def is_settled(self) -> bool:
        return self.state in (FINISHED, FAILED, STOPPED)


class Source(Protocol):
    """Where the jobs come from: a list, or a search that looks at what came out before it goes on."""

    jobs: list[Job]
    """All so far, in the order in which they are shown and started."""

    def more(self) -> bool:
        """Add a job, if there is one to add now. Called when a slot is free and no job waits."""

    def is_over(self, job: Job) -> bool:
        """Whether a running job need not go on. Called every second."""

    def settled(self, job: Job) -> None:
        """The job is finished, failed or stopped."""


@dataclass
class Listed:
    """A source whose jobs are known beforehand."""

    jobs: list[Job]

    def more(self) -> bool:
        return False

    def is_over(self, job: Job) -> bool:
        return False

    def settled(self, job: Job) -> None:
        """Nothing follows from it."""


class Runner:
    """Runs the jobs of a source.

    records: where logs and failures go. finished: config_hash -> what results.csv holds of a run whose folder may be gone.
    show: called with the jobs whenever something may have changed. command: what a point's overrides are the arguments of.
    """

    def __init__(
        self,
        records: Records,
        finished: Mapping[str, Held],
        jobs: int,
        show: Callable[[Sequence[Job]], None],
        command: Sequence[str] = (sys.executable, "-m", "mlm_lab"),
    ):
        self._records, self._finished, self._show, self._command = records, finished, show, command
        self._free = share_out(jobs)
        self._stop: int | None = None
        self._looked = 0.0

    def run(self, source: Source) -> None:
        """Until every job is settled.

        Raises Interrupted: Ctrl-C or SIGTERM arrived; the running points were stopped, each with a checkpoint.
        """
        with self._signals(source):
            for job in source.jobs:
                if not job.is_settled:  # a search knows of earlier calls what has failed or was stopped
                    self._skip(job, source)
            while True:
                self._reap(source)
                self._look(source)
                if self._stop is None:
                    self._fill(source)
                running = [job for job in source.jobs if job.state == RUNNING]
                self._show(source.jobs)
                if self._stop is not None and not running:
                    raise Interrupted(128 + self._stop)
                if self._stop is None and all(job.is_settled for job in source.jobs) and not source.more():
                    return
                time.sleep(POLL_SECONDS)

    def _fill(self, source: Source) -> None:
        """Start what waits, as far as there are free slots."""
        while self._free:
            waiting = next((job for job in source.jobs if job.state == WAITING), None)
            if waiting is None:
                if not source.more():
                    return
            elif not self._skip(waiting, source):
                self._start(waiting)

    def _skip(self, job: Job, source: Source) -> bool:
        """Settle a job that needs no process here: it is finished, or somebody else works on it."""
        folder = job.point.folder
        if is_in_results(job.point, self._finished):
            job.note = "its numbers are in results.csv"
            self._settle(job, FINISHED, source, skipped=True)
        elif is_finished(job.point) and self._add_study(job):
            self._settle(job, FINISHED, source, skipped=True)
        elif (holder := folder.claimed_by()) is not None:
            job.state, job.note = ELSEWHERE, holder
        else:
            return False
        return True

    def _add_study(self, job: Job) -> bool:
        """A finished run becomes part of this study too. False where another process holds its folder just now."""
        folder, summary = job.point.folder, job.point.folder.read_summary()
        fields: dict[str, Any] = {}
        studies = run_door.studies_of(summary, job.point.config.study)
        if studies != summary.get("studies"):
            fields["studies"] = studies
        if job.point.tuned and (summary.get("tuned") or {}).get(job.point.config.study) != job.point.tuned:
            fields["tuned"] = {job.point.config.study: job.point.tuned}
        try:
            if fields:
                with folder.claim():
                    folder.update_summary(**fields)
        except Claimed:
            return False
        return True

    def _start(self, job: Job) -> None:
        job.slot = self._free.pop(0)
        log = self._records.log_file(job.point)
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as output:
            job.log_start = output.tell()
            job.process = subprocess.Popen(
                [*self._command, *job.point.overrides],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **job.slot.environment},
                start_new_session=True,  # Ctrl-C on the terminal reaches this process only, which passes it on once
                preexec_fn=bound_to(os.getpid(), job.slot.cpus),
            )
        job.state, job.note, job.asked_to_stop, job.started = RUNNING, "", False, time.monotonic()

    def _reap(self, source: Source) -> None:
        """Settle the jobs whose process has ended."""
        for job in source.jobs:
            if job.state != RUNNING or job.process.poll() is None:
                continue
            job.seconds = time.monotonic() - job.started
            self._free.append(job.slot)
            code = job.process.returncode
            if is_finished(job.point):
                if not self._add_study(job):  # which its own process has done, but for `tuned`
                    job.state, job.note = ELSEWHERE, "another process"
                    continue
                self._settle(job, FINISHED, source, error=None, exit_code=code, stopped_early=False)
            elif job.asked_to_stop:
                self._settle(job, STOPPED, source, error=None, exit_code=code, stopped_early=True)
            elif self._stop is not None:
                job.state = INTERRUPTED
            elif code == Claimed.exit_code:
                job.state, job.note = ELSEWHERE, job.point.folder.claimed_by() or "another process"
            else:
                lines = last_lines(self._records.log_file(job.point), job.log_start) or [_ending(code)]
                job.note = next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), lines[-1].strip())
                job.note = f"{_ending(code)}: {job.note}" if code < 0 else job.note
                self._settle(job, FAILED, source, error=lines, exit_code=code)

    def _settle(self, job: Job, state: str, source: Source, *, skipped: bool = False, **record: Any) -> None:
        job.state, job.skipped, job.process = state, skipped, None
        if record or skipped:
            self._records.note(job.point, **(record or {"error": None, "exit_code": None}))
        source.settled(job)

    def _look(self, source: Source) -> None:
        """Every second: has another machine finished or left a point? does a search want a running one to go on?"""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        for job in source.jobs:
            if job.state == ELSEWHERE:
                job.state = WAITING
                self._skip(job, source)
            elif job.state == RUNNING and not job.asked_to_stop and source.is_over(job):
                job.asked_to_stop = True
                job.process.send_signal(signal.SIGTERM)

    @contextmanager
    def _signals(self, source: Source) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM has each running point write a checkpoint and end; the second ends them at once."""

        def stop(number: int, frame: FrameType | None) -> None:
            again, self._stop = self._stop is not None, number
            for job in source.jobs:
                if job.state == RUNNING and job.process.poll() is None:
                    if again:
                        os.killpg(job.process.pid, signal.SIGKILL)
                    else:
                        job.process.send_signal(signal.SIGTERM)
            if not again:  # a signal may arrive in the middle of a print: the console must not be entered a second time
                os.write(2, b"\nstopping: each running point finishes its step and writes a checkpoint; once more ends them at once\n")

        previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in previous:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for job in source.jobs:  # an error of ours leaves no process behind
                if job.process is not None and job.process.poll() is None:
                    job.process.terminate()
            for number, handler in previous.items():
                signal.signal(number, handler)


def is_finished(point: Point) -> bool:
    """Whether its run folder holds all that it asks for. A damaged one does not: its own process will say what is wrong."""
    try:
        return run_door.is_finished(point.folder.read_summary(), point.config_hash, point.config)
    except UserError:
        return False


def is_in_results(point: Point, finished: Mapping[str, Held]) -> bool:
    """Whether results.csv holds all that it asks for, and its run folder is gone: a folder knows more than its row."""
    held = None if point.folder.summary_json.exists() else finished.get(point.config_hash)
    return held is not None and held.has_all_of(point.config_hash, point.config)


def bound_to(parent: int, cpus: tuple[int, ...]) -> Callable[[], None]:
    """What the new process does before anything else: stay on its cores, and on Linux get SIGTERM when the runner ends, however it ends."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h

    def prepare() -> None:
        if cpus:
            os.sched_setaffinity(0, cpus)
        if prctl is not None:
            prctl(set_parent_death_signal, signal.SIGTERM)
            if os.getppid() != parent:  # it ended in between
                os._exit(128 + signal.SIGTERM)

    return prepare


def _ending(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
