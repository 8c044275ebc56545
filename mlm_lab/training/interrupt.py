"""Ctrl-C and SIGTERM while steps run: after the first the step is finished and a checkpoint written; the second ends the process.

A Slurm job may be told that its time is up (sbatch --signal=SIGUSR1@90): it stops in the same way and goes back into the queue, where the
same command continues the run. (Lightning would write a checkpoint of its own in the middle of a step, which a bitwise resume cannot use.)
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from types import FrameType, TracebackType
from typing import Any

from mlm_lab import console

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
TIME_IS_UP = signal.SIGUSR1


class StopRequest:
    """A context in which the signals only set `signal_number`. Where signals cannot be caught (another thread) nothing changes."""

    signal_number: int | None = None

    def __enter__(self) -> StopRequest:
        in_main_thread = threading.current_thread() is threading.main_thread()
        signals = (*_SIGNALS, TIME_IS_UP) if is_slurm_job() else _SIGNALS
        self._previous: dict[int, Any] = {number: signal.getsignal(number) for number in signals} if in_main_thread else {}
        for number in self._previous:
            signal.signal(number, self._request)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number is not None:
            os._exit(128 + number)
        self.signal_number = number
        # A signal may arrive in the middle of a print: the console must not be entered a second time.
        os.write(2, b"\nstopping: this step is finished and a checkpoint written; once more ends it at once\n")


def is_slurm_job() -> bool:
    """Whether Slurm has started this process, and not from somebody's shell."""
    return "SLURM_JOB_ID" in os.environ and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def requeue() -> None:
    """Put this job back into Slurm's queue."""
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    if not re.fullmatch(r"[0-9_]+", job):
        return
    try:
        done = subprocess.run(["scontrol", "requeue", job], check=False).returncode == 0
    except OSError:
        done = False
    if done:
        console.say(f"the time of job {job} is up: it is in the queue again")
    else:
        console.warn(f"the time of job {job} is up, and scontrol requeue did not take it: start the same command again")
