"""What a point's run takes on this machine, from a short run of it: the point's own command with a few steps, in a process of its own.

    process starts ... steps ... validations and checkpoints, ten as in the whole run ... weights and curve written ... evaluation ... end
                       summary.json: seconds of the steps                                 the curve's file

As many of them at a time, on as many cores, as the sweep will run: points that stand side by side slow each other down.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean

from mlm_lab import console
from mlm_lab.errors import UserError
from mlm_lab.sweep.records import last_lines
from mlm_lab.sweep.runner import bound_to
from mlm_lab.sweep.slots import Slot, share_out

STEPS = 30
"""Enough for ten validations, and for a mean over steps that are warm."""
EVALUATED_EXAMPLES = 1000
"""Training examples of a task at most; what more take is worked out."""
RESULTS = "evaluation/*/*/*/result.json"
ONE_CELL = ("evaluation.seeds=1", "evaluation.floor=false", f"evaluation.train_limit={EVALUATED_EXAMPLES}", "evaluation.protocol=fixed")
LOG, FIGURE = "log.txt", "loss.svg"
"""The second is what pretraining writes last."""
POLL_SECONDS = 0.05
REPLACED = ("budget.", "output_dir", "logger", "stages", "study", "validation.every_steps", "checkpoint.every_steps")


@dataclass(frozen=True)
class ShortRun:
    """What was measured."""

    parameters: float
    tokens: float
    """Raw corpus tokens of a step."""
    positions: float
    flops: float
    flops_head: float
    step: float
    """Seconds of a step, warm-up left out."""
    overhead: float
    """Seconds of the process that no step takes and that a longer run has as well: start, validations, checkpoints, end."""
    evaluation: float
    """Seconds from the end of pretraining to the end of the process."""
    cells: Mapping[str, float]
    """Task -> those of them that were spent on measuring it; the rest are loading and imports."""


def measure(words: Sequence[Sequence[str]], evaluated: Sequence[bool], jobs: int, folder: Path) -> list[ShortRun]:
    """A short run of each of these commands, `jobs` at a time; where there are fewer than that, several of each, so that the machine is as
    full as it will be.

    words: overrides. evaluated: whether the tasks are to be measured as well, with one seed and no floor. folder: for run folders.
    Raises:
        UserError: a run failed, with its last lines.
    """
    kinds = list(zip(words, evaluated, strict=True))
    waiting = [_Process(*kinds[number % len(kinds)], folder / f"short-{number}") for number in range(-(-jobs // len(kinds)) * len(kinds))]
    started, running, free = list(waiting), [], share_out(jobs)
    try:
        with console.progress("short runs", len(started), "runs") as progress:
            while waiting or running:
                while waiting and free:
                    waiting[0].start(free.pop())
                    running.append(waiting.pop(0))
                time.sleep(POLL_SECONDS)
                for process in [process for process in running if process.is_over()]:
                    running.remove(process)
                    free.append(process.slot)
                    progress.update(len(started) - len(waiting) - len(running))
    finally:
        for process in running:
            process.popen.terminate()
    found = [process.read() for process in started]
    return [_mean(found[number :: len(kinds)]) for number in range(len(kinds))]


class _Process:
    """A short run on its way."""

    slot: Slot
    popen: subprocess.Popen

    def __init__(self, words: Sequence[str], evaluated: bool, folder: Path):
        self.evaluated, self.folder = evaluated, folder
        stages = "prepare,pretrain" + ",evaluate" * evaluated
        own = [f"budget.steps={STEPS}", f"output_dir={folder}", "logger=csv", f"stages=[{stages}]", *(ONE_CELL if evaluated else ())]
        self.words = [*(word for word in words if not word.startswith(REPLACED)), *own]

    def start(self, slot: Slot) -> None:
        self.folder.mkdir(parents=True)
        self.slot, self.started = slot, time.time()
        with open(self.folder / LOG, "wb") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "mlm_lab", *self.words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **slot.environment},
                preexec_fn=bound_to(os.getpid(), slot.cpus),
            )

    def is_over(self) -> bool:
        """Raises UserError where it failed."""
        if (code := self.popen.poll()) is None:
            return False
        self.ended = time.time()
        if code != 0:
            lines = last_lines(self.folder / LOG, 0) or [f"exit code {code}"]
            given = f"python -m mlm_lab {shlex.join(self.words)}"
            raise UserError(f"a short run failed, so that nothing can be planned: {lines[-1]}", given=given, where="\n".join(lines[-4:-1]))
        return True

    def read(self) -> ShortRun:
        (path,) = self.folder.glob("*/summary.json")
        summary = json.loads(path.read_text(encoding="utf-8"))
        trained = (path.parent / FIGURE).stat().st_mtime if self.evaluated else self.ended
        return ShortRun(
            parameters=summary["parameters"]["total"],
            tokens=summary["tokens"] / STEPS,
            positions=summary["positions"] / STEPS,
            flops=summary["flops"]["total"] / STEPS,
            flops_head=summary["flops"]["head"] / STEPS,
            step=summary["positions"] / STEPS / summary["tokens_per_second"],
            overhead=trained - self.started - summary["seconds"],
            evaluation=self.ended - trained,
            cells={result.parts[-4]: json.loads(result.read_text(encoding="utf-8"))["seconds"] for result in path.parent.glob(RESULTS)},
        )


def _mean(runs: Sequence[ShortRun]) -> ShortRun:
    numbers = [field.name for field in fields(ShortRun) if field.name != "cells"]
    cells = {task: fmean(run.cells[task] for run in runs) for task in runs[0].cells}
    return ShortRun(**{name: fmean(getattr(run, name) for run in runs) for name in numbers}, cells=cells)
