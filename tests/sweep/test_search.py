"""Search by Optuna: what is asked for, what is told, what is stopped, and that a search which is killed goes on as if it had not been."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlm_lab.errors import UserError
from mlm_lab.sweep import search as search_module
from mlm_lab.sweep.records import Records
from mlm_lab.sweep.runner import FAILED, FINISHED, STOPPED, WAITING, Job
from mlm_lab.sweep.search import JOURNAL, Search
from mlm_lab.sweep.sweep_file import SweepFile
from tests.sweep.sweeps_for_tests import sweep

pytest.importorskip("optuna")
BAYES = (
    ("method: grid\n", "method: bayes\nrun_cap: 8\n"),
    ("  primary: {metric: probe/mlm_15_loss, baseline: 0.15, contrast: 0.4}\n", "\n"),
    ("name: probe/mlm_15_loss", "name: val/loss"),
    ("    values: [0.15, 0.4]", "    {min: 0.1, max: 0.8}"),
)


@pytest.fixture(autouse=True)
def _look_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "RANDOM_FIRST", 2)


@pytest.fixture
def bayes(tmp_path: Path) -> SweepFile:
    return sweep(tmp_path, *BAYES).with_words([f"output_dir={tmp_path}"])


def search(found: SweepFile, folder: Path) -> Search:
    return Search(found, Records(folder, "good"), found.points())


def finish(job: Job, value: float) -> None:
    """What a process of the point would leave."""
    job.point.folder.update_summary(status="finished", metrics={"val/loss": value})
    job.state = FINISHED


def go_on(source: Search, number: int) -> list[dict]:
    """So many more trials, whose loss is lowest at a ratio of 0.5. The values asked for."""
    asked = []
    for _ in range(number):
        assert source.more()
        job = source.jobs[-1]
        asked.append(dict(job.point.values))
        finish(job, abs(job.point.values["objective.mask_ratio"] - 0.5))
        source.settled(job)
    return asked


def test_it_ends_at_its_cap_and_knows_the_best(bayes: SweepFile, tmp_path: Path) -> None:
    source = search(bayes, tmp_path)
    asked = go_on(source, 8)
    assert not source.more() and len(source.jobs) == 8
    assert all(0.1 <= values["objective.mask_ratio"] <= 0.8 and values["seed"] in (0, 1, 2) for values in asked)
    best = min(asked, key=lambda values: abs(values["objective.mask_ratio"] - 0.5))
    assert dict(source.best().point.values) == best


def test_a_search_that_was_broken_off_asks_for_what_it_would_have_asked_for(bayes: SweepFile, tmp_path: Path) -> None:
    whole = go_on(search(bayes, tmp_path / "whole"), 8)
    first = go_on(search(bayes, tmp_path / "broken"), 4)
    second = search(bayes, tmp_path / "broken")
    assert [job.state for job in second.jobs] == [FINISHED] * 4 and all(job.skipped for job in second.jobs)
    assert first + go_on(second, 4) == whole


def test_a_trial_that_was_running_is_run_to_its_end(bayes: SweepFile, tmp_path: Path) -> None:
    killed = search(bayes, tmp_path)
    assert killed.more()
    again = search(bayes, tmp_path)
    assert [job.state for job in again.jobs] == [WAITING] and again.jobs[0].point.values == killed.jobs[0].point.values
    finish(again.jobs[0], 1.0)
    again.settled(again.jobs[0])
    killed.jobs[0].state = FINISHED
    killed.settled(killed.jobs[0])  # another machine's runner, which waited for the same trial
    assert [job.state for job in search(bayes, tmp_path).jobs] == [FINISHED]


def test_failed_and_stopped_trials_stay_so(bayes: SweepFile, tmp_path: Path) -> None:
    source = search(bayes, tmp_path)
    for state in (FAILED, STOPPED):
        source.more()
        source.jobs[-1].state = state
        source.settled(source.jobs[-1])
    assert [job.state for job in search(bayes, tmp_path).jobs] == [FAILED, STOPPED]


def test_another_budget_is_another_search(bayes: SweepFile, tmp_path: Path) -> None:
    go_on(search(bayes, tmp_path), 2)
    assert search(bayes.with_words(["budget.steps=7"]), tmp_path).jobs == []
    assert len(search(bayes, tmp_path).jobs) == 2 and (tmp_path / "sweeps" / "good" / JOURNAL).exists()


def write_losses(job: Job, losses: list[float]) -> None:
    rows = "".join(f"{step},{loss}\n" for step, loss in enumerate(losses, start=1))
    job.point.folder.write_text("metrics.csv", f"step,val/loss\n{rows}")


def test_hyperband_stops_what_falls_behind(tmp_path: Path) -> None:
    early = ("run_cap: 8\n", "run_cap: 8\nearly_terminate: {type: hyperband, min_iter: 2, eta: 2, max_iter: 4}\n")
    source = search(sweep(tmp_path, *BAYES, early).with_words([f"output_dir={tmp_path}"]), tmp_path)
    stopped = []
    for number in range(8):
        source.more()
        job = source.jobs[-1]
        losses = [5.0 + number, 4.0 + number, 3.0 + number, 2.0 + number]  # each is worse than all before it
        for seen in range(1, 5):
            write_losses(job, losses[:seen])
            if source.is_over(job):
                stopped.append((number, seen))
                job.state = STOPPED
                break
        else:
            finish(job, losses[-1])
        source.settled(job)
    assert 0 not in dict(stopped) and len(stopped) >= 5 and {seen for _, seen in stopped} <= {2, 4}, stopped


def test_a_grid_with_early_stopping_asks_for_its_points_in_order(tmp_path: Path) -> None:
    found = sweep(tmp_path, ("method: grid\n", "method: grid\nearly_terminate: {type: hyperband, min_iter: 2}\n"))
    source = search(found.with_words([f"output_dir={tmp_path}"]), tmp_path)
    while source.more():
        finish(source.jobs[-1], 1.0)
        source.settled(source.jobs[-1])
    assert [job.point.values for job in source.jobs] == [point.values for point in found.points()]


def test_a_search_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line 3: a bayes search has no end of its own: run_cap"):
        sweep(tmp_path, ("method: grid\n", "method: bayes\n"), *[change for change in BAYES[1:] if "run_cap" not in change[1]])


def test_a_random_search_of_listed_values_ends_when_they_are_used_up(tmp_path: Path) -> None:
    found = sweep(tmp_path, ("method: grid\n", "method: random\n")).with_words([f"output_dir={tmp_path}"])
    source = search(found, tmp_path)
    asked = []
    while source.more():
        finish(source.jobs[-1], 1.0)
        source.settled(source.jobs[-1])
        asked.append(source.jobs[-1].point.values)
    every = [point.values for point in replace(found, method="grid").points()]
    assert len(asked) == 6 and all(values in asked for values in every) and asked != every


def test_a_random_search_that_was_broken_off_goes_on_in_its_order(tmp_path: Path) -> None:
    found = sweep(tmp_path, ("method: grid\n", "method: random\nrun_cap: 4\n")).with_words([f"output_dir={tmp_path}"])
    whole, broken = search(found, tmp_path / "whole"), search(found, tmp_path / "broken")
    for source in (whole, broken):
        while len(source.jobs) < (2 if source is broken else 9) and source.more():
            finish(source.jobs[-1], 1.0)
            source.settled(source.jobs[-1])
    again = search(found, tmp_path / "broken")
    while again.more():
        pass
    assert [job.point.values for job in again.jobs] == [job.point.values for job in whole.jobs] and len(whole.jobs) == 4
