"""The local runner with real processes that train nothing (stub_run.py): nothing lost, nothing doubled, whatever ends whom."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlm_lab.errors import Interrupted
from mlm_lab.provenance import available_cpus
from mlm_lab.run_folder import RunFolder
from mlm_lab.sweep import runner
from mlm_lab.sweep.records import Held, Records
from mlm_lab.sweep.runner import ELSEWHERE, FAILED, FINISHED, INTERRUPTED, RUNNING, STOPPED, Job, Listed
from tests.sweep.stubs import StubPoint, make_runner, points, run

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _stubs_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def states(jobs: list[Job]) -> list[str]:
    return [job.state for job in jobs]


def wait_until(holds, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def steps(point: StubPoint) -> list[str]:
    return [line.partition(",")[0] for line in point.folder.metrics_csv.read_text().splitlines()[1:]]


def test_points_run_one_process_each_and_the_cores_are_shared_out(tmp_path: Path) -> None:
    most = []
    jobs = run(points(tmp_path, *["2x0.05"] * 4), jobs=2, show=lambda jobs: most.append(states(jobs).count(RUNNING)))
    assert states(jobs) == [FINISHED] * 4 and max(most) == 2
    share = max(1, available_cpus() // 2)
    for job in jobs:
        (start,) = job.point.starts
        assert start.split()[1:] == [str(share), str(min(share, int(os.environ.get("OMP_NUM_THREADS", share))))]


def test_finished_points_are_skipped_and_become_part_of_the_study(tmp_path: Path) -> None:
    every = points(tmp_path, "1x0", "1x0")
    every[1].folder.update_summary(status="finished", weights_sha256="0", studies=["another"])
    jobs = run(every)
    assert states(jobs) == [FINISHED, FINISHED] and [job.skipped for job in jobs] == [False, True]
    assert every[1].starts == [] and every[1].folder.read_summary()["studies"] == ["another", "study"]


def test_a_point_that_results_csv_holds_is_skipped_though_its_folder_is_gone(tmp_path: Path) -> None:
    every = points(tmp_path, "1x0")
    (job,) = run(every, finished={every[0].config_hash: Held(None, frozenset({"val"}))})
    assert job.state == FINISHED and job.skipped and not every[0].folder.path.exists()


def test_a_folder_knows_more_than_its_row_in_results_csv(tmp_path: Path) -> None:
    every = points(tmp_path, "2x0")
    every[0].folder.update_summary(status="interrupted", steps=1)
    (job,) = run(every, finished={every[0].config_hash: Held(None, frozenset({"val"}))})
    assert job.state == FINISHED and not job.skipped and len(every[0].starts) == 1


def test_a_failed_point_is_recorded_with_its_last_lines_and_the_rest_carries_on(tmp_path: Path) -> None:
    every = points(tmp_path, "1x0", "fail", "die", "1x0")
    jobs = run(every)
    assert states(jobs) == [FINISHED, FAILED, FAILED, FINISHED]
    records = Records(tmp_path, "study")
    assert records.read(every[1])["error"] == ["Traceback ...", "error: the loss is not finite", "  where: step 7"]
    assert records.read(every[1])["exit_code"] == 2 and jobs[1].note == "the loss is not finite"
    assert records.read(every[2])["error"] == ["ended by SIGKILL"] and records.read(every[0])["error"] is None
    assert "the loss is not finite" in records.log_file(every[1]).read_text()


def test_a_point_that_failed_is_tried_again_and_its_error_goes_with_success(tmp_path: Path) -> None:
    run(points(tmp_path, "fail"))
    (job,) = run(points(tmp_path, "1x0"))
    assert job.state == FINISHED and Records(tmp_path, "study").read(job.point)["error"] is None


def test_an_interrupted_point_goes_on_where_it_was(tmp_path: Path) -> None:
    (point,) = points(tmp_path, "4x0")
    point.folder.update_summary(status="interrupted", steps=2)
    point.folder.write_text("metrics.csv", "step,val/loss\n1,9\n2,8\n")
    assert states(run([point])) == [FINISHED] and steps(point) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_points_with_a_checkpoint(tmp_path: Path, number: int) -> None:
    every = points(tmp_path, "400x0.05", "400x0.05", "1x0")

    def show(jobs: list[Job]) -> None:
        if all(point.folder.metrics_csv.exists() and len(steps(point)) > 1 for point in every[:2]) and not sent:
            sent.append(jobs)
            os.kill(os.getpid(), number)

    sent: list = []
    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as stopped:
        run(every, show=show)
    assert stopped.value.exit_code == 128 + number and signal.getsignal(number) is before
    assert states(sent[0]) == [INTERRUPTED, INTERRUPTED, "waiting"]
    for point in every[:2]:
        assert point.folder.read_summary()["status"] == "interrupted" and point.folder.claimed_by() is None


def test_a_point_on_which_another_process_works_is_waited_for(tmp_path: Path) -> None:
    every = points(tmp_path, "30x0.05", "1x0")
    other = subprocess.Popen([sys.executable, "-m", "tests.sweep.stub_run", *every[0].overrides], cwd=REPOSITORY)
    wait_until(lambda: every[0].folder.claimed_by() is not None)
    seen = []
    jobs = run(every, show=lambda jobs: seen.append(jobs[0].state))
    assert other.wait() == 0
    assert states(jobs) == [FINISHED, FINISHED] and ELSEWHERE in seen and RUNNING not in seen
    assert len(every[0].starts) == 1


def test_a_point_of_a_machine_that_no_longer_answers_is_taken_over_once_its_heartbeat_is_old(tmp_path: Path) -> None:
    (point,) = points(tmp_path, "1x0")
    point.folder.path.mkdir(parents=True)
    dead = point.folder.path / ".claim-1"
    dead.write_text("process 7 on another, since 2026-01-01 00:00:00\nanother-machine\n")
    seen: list[tuple[str, str]] = []

    def show(jobs: list[Job]) -> None:
        seen.append((jobs[0].state, jobs[0].note))
        if jobs[0].state == ELSEWHERE:
            os.utime(dead, (time.time() - 1000,) * 2)

    assert states(run([point], show=show)) == [FINISHED]
    assert seen[0] == (ELSEWHERE, "process 7 on another, since 2026-01-01 00:00:00") and len(point.starts) == 1


def test_two_runners_on_one_folder_run_no_point_twice(tmp_path: Path) -> None:
    every = points(tmp_path, *["2x0.1"] * 6)
    command = [sys.executable, "-m", "tests.sweep.stubs", str(tmp_path), "2", *["2x0.1"] * 6]
    runners = [subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(timeout=120) for process in runners] == [0, 0]
    assert [len(point.starts) for point in every] == [1] * 6
    assert all(point.folder.read_summary()["status"] == "finished" for point in every)


def test_a_killed_runner_takes_its_points_along_and_a_new_one_loses_and_doubles_none(tmp_path: Path) -> None:
    behaviours = ["6x0.05"] * 10
    every, generator = points(tmp_path, *behaviours), random.Random(0)
    command = [sys.executable, "-m", "tests.sweep.stubs", str(tmp_path), "2", *behaviours]
    for _ in range(3):
        killed = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
        time.sleep(0.8 + generator.random())
        killed.kill()
        killed.wait()
    jobs = run(every)
    assert states(jobs) == [FINISHED] * 10
    for point in every:
        assert steps(point) == [str(step) for step in range(1, 7)], "each step once"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they go on, and their claims show it")
def test_what_a_killed_runner_had_started_ends_with_a_checkpoint(tmp_path: Path) -> None:
    (point,) = points(tmp_path, "2000x0.02")
    command = [sys.executable, "-m", "tests.sweep.stubs", str(tmp_path), "1", "2000x0.02"]
    killed = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    wait_until(lambda: point.folder.metrics_csv.exists() and len(steps(point)) > 2)
    killed.kill()
    killed.wait()
    wait_until(lambda: point.folder.claimed_by() is None)
    assert point.folder.read_summary()["status"] == "interrupted"


class StopAfter(Listed):
    """A source that has seen enough of a run after five rows."""

    def is_over(self, job: Job) -> bool:
        return job.point.folder.metrics_csv.exists() and len(steps(job.point)) >= 5


def test_a_source_may_stop_a_run_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.05)
    every = points(tmp_path, "400x0.05")
    records = Records(tmp_path, "study")
    records.plan(every[0], "common")
    source = StopAfter([Job(every[0])])
    make_runner(tmp_path, 1).run(source)
    assert states(source.jobs) == [STOPPED] and records.read(every[0])["stopped_early"] is True


def test_an_error_of_ours_leaves_no_process_behind(tmp_path: Path) -> None:
    found: list[subprocess.Popen] = []

    def show(jobs: list[Job]) -> None:
        if jobs[0].process is not None:
            found.append(jobs[0].process)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(points(tmp_path, "2000x0.02"), show=show)
    assert found[0].wait(timeout=60) in (128 + signal.SIGTERM, -signal.SIGTERM)


def test_a_point_that_another_process_claims_while_ours_starts_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = points(tmp_path, "60x0.05")
    other = subprocess.Popen([sys.executable, "-m", "tests.sweep.stub_run", *every[0].overrides], cwd=REPOSITORY)
    wait_until(lambda: every[0].folder.claimed_by() is not None)
    seen: list[str] = []
    real = RunFolder.claimed_by
    monkeypatch.setattr(RunFolder, "claimed_by", lambda folder: real(folder) if RUNNING in seen else None)
    jobs = run(every, show=lambda jobs: seen.append(jobs[0].state))
    assert other.wait() == 0 and states(jobs) == [FINISHED]
    assert seen.index(ELSEWHERE) > seen.index(RUNNING) and len(every[0].starts) == 1
