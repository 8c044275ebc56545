"""What a person sees of a sweep that runs: a line for each change in a log, one table on a terminal, whatever its height."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm_lab.sweep import table
from mlm_lab.sweep.runner import ELSEWHERE, FAILED, FINISHED, RUNNING, STOPPED, WAITING, Job
from mlm_lab.sweep.slots import Slot
from mlm_lab.sweep.table import Display
from tests.sweep.stubs import points


def jobs_of(folder: Path, *states: str) -> list[Job]:
    return [Job(point, state=state) for point, state in zip(points(folder, *["1x0"] * len(states)), states, strict=True)]


def test_a_log_has_a_line_for_each_change(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    jobs = jobs_of(tmp_path, WAITING, WAITING, FINISHED)
    jobs[2].skipped = True
    display = Display("study", "val/loss", 3, 2, None)
    display.show(jobs)
    jobs[0].state, jobs[0].slot = RUNNING, Slot((0, 1), 2, ())
    display.show(jobs)
    display.show(jobs)
    jobs[0].point.folder.update_summary(status="finished", metrics={"val/loss": 2.5})
    jobs[0].state, jobs[0].seconds = FINISHED, 70
    jobs[1].state, jobs[1].note = ELSEWHERE, "process 7 on another"
    display.show(jobs)
    jobs[1].state, jobs[1].note = FAILED, "exit code 2"
    display.show(jobs)
    assert capsys.readouterr().out.splitlines() == [
        "[1/3] arm=0 seed=0: started on cores 0,1",
        "[2/3] arm=0 seed=0: finished in 1:10, val/loss 2.5",
        "[2/3] arm=1 seed=0: is worked on by process 7 on another",
        "[3/3] arm=1 seed=0: FAILED: exit code 2",
    ]


def test_a_terminal_has_one_table_with_steps_metric_and_what_is_left(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, FINISHED, RUNNING, WAITING, WAITING)
    jobs[0].point.folder.update_summary(status="finished", steps=4, budget_steps=4, metrics={"val/loss": 2.5})
    jobs[0].seconds = 100.0
    jobs[1].point.folder.update_summary(status="running", budget_steps=1200)
    jobs[1].point.folder.write_text("metrics.csv", "step,val/loss\n300,3.5\n")
    drawn = []
    display = Display("study", "val/loss", 4, 1, lambda *frame: drawn.append(frame))
    jobs[1].started = table.time.monotonic() - 40
    display.show(jobs)
    title, columns, rows, note = drawn[-1]
    assert (title, columns) == ("study", ("arm", "seed", "state", "steps", "val/loss", "time"))
    assert rows[0] == ("arm=0", 0, "finished", "4/4", 2.5, "1:40") and rows[1][:5] == ("arm=1", 0, "running", "300/1,200", 3.5)
    assert note.startswith("1 finished, 1 running, 2 waiting; about 4:2") and note.endswith(" left")


def test_a_low_terminal_shows_what_runs_and_what_went_wrong(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, *[FINISHED] * 10, FAILED, STOPPED, RUNNING, *[WAITING] * 30)
    shown = [job.point.number for job in table._fitting(jobs, 6)]
    assert shown == [7, 8, 9, 10, 11, 12], "running, failed, stopped, and the last that were finished"
    assert len(table._fitting(jobs, 100)) == len(jobs)
