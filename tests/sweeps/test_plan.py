"""--plan: what a sweep will cost, put together from measurements; what it can show; the gate."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mlm_lab.errors import Interrupted, UserError
from mlm_lab.sweep import pilots, plan
from mlm_lab.sweep.gates import gate_points
from mlm_lab.sweep.made_up import write_text
from mlm_lab.sweep.reading import read
from mlm_lab.sweep.short_run import STEPS, ShortRun
from mlm_lab.sweep.sweep_file import SweepFile

SWEEPS = Path(__file__).resolve().parents[2] / "sweeps"
RUN = ShortRun(
    parameters=1e6,
    tokens=100.0,
    positions=110.0,
    flops=2e9,
    flops_head=1e9,
    step=0.1,
    overhead=7.0,
    evaluation=30.0,
    cells={"pydocs_topic": 20.0},
)


@pytest.fixture(scope="module")
def sweep() -> SweepFile:
    return read(SWEEPS / "mask_ratio.yaml").with_words(["objective.mask_ratio=0.15,0.4,0.8", "budget.tokens=5000"])


def test_a_point_costs_what_its_short_run_says(sweep: SweepFile) -> None:
    cost = plan._cost(sweep.points()[0], RUN, RUN, with_floor=True)
    assert (cost.steps, cost.tokens, cost.flops, cost.head) == (50, 5000, 1e11, 0.5)
    assert cost.seconds == pytest.approx(7 + 50 * 0.1)


@pytest.mark.parametrize(("jobs", "expected"), [(1, 10.0), (2, 7.0), (3, 5.0), (9, 4.0)])
def test_runs_are_shared_out_in_their_order(jobs: int, expected: float) -> None:
    assert plan.makespan([3.0, 1.0, 2.0, 4.0], jobs) == expected


def test_a_floor_is_measured_once_and_counts_three_cells(sweep: SweepFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_more", lambda config, name: 2.0)
    monkeypatch.setattr("mlm_lab.provenance.available_cpus", lambda: 1)
    config = sweep.with_words(["evaluation.tasks=[pydocs_topic]"]).points()[0].config
    assert plan._evaluation(config, RUN, with_floor=False) == pytest.approx(10 + 2 * 20)
    assert plan._evaluation(config, RUN, with_floor=True) == pytest.approx(10 + 4 * 2 * 20)
    assert plan._evaluation(replace(config, stages=("prepare", "pretrain")), RUN, with_floor=True) == 0


def test_without_a_store_a_made_up_text_stands_for_the_corpus(sweep: SweepFile, tmp_path: Path) -> None:
    shaped = sweep.with_words([f"cache_dir={tmp_path}", "data.validation_share=0.5", "tokenizer.vocab_size=400"])
    words = plan._with_made_up_text(shaped.points()[0], tmp_path)
    assert "data=text" in words and not any(word.startswith("data.validation_share") for word in words)
    text = (tmp_path / "text-400.txt").read_text()
    documents = [document for document in text.split("\n\n") if document.strip()]
    sentences = [sentence for sentence in text.splitlines() if sentence]
    assert 2.5 < len(sentences) / len(documents) < 3.5 and 15 < len(text.split()) / len(sentences) < 19
    assert len(set(text.lower().replace(".", "").split())) == 800


def test_a_made_up_text_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_text(tmp_path / name, 100)
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()


def test_the_gate_is_the_two_ends_with_a_seed_of_no_test_at_a_quarter_of_the_budget(sweep: SweepFile) -> None:
    first, last = gate_points(sweep, sweep.points())
    assert (first.config.objective.mask_ratio, last.config.objective.mask_ratio) == (0.15, 0.8)
    for point in (first, last):
        assert point.config.seed == 0 and point.config.budget.tokens == 1250 and point.config.study == "mask_ratio.gate"
        assert point.config.stages == ("prepare", "pretrain")


def write_run(folder: Path, ratio: float, seed: int, value: float, status: str = "finished") -> None:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"objective": {"mask_ratio": ratio}}))
    (folder / "summary.json").write_text(json.dumps({"status": status, "seeds": {"init": seed}, "metrics": {"probe/mlm_15_loss": value}}))


def test_a_pilot_tells_the_seeds_that_a_difference_needs(sweep: SweepFile, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for number, (ratio, seed, value) in enumerate([(0.15, 0, 4.0), (0.15, 1, 4.3), (0.4, 0, 3.7), (0.4, 1, 3.9)]):
        write_run(tmp_path / f"run{number}", ratio, seed, value)
    write_run(tmp_path / "stopped", 0.4, 1, 9.0, status="interrupted")
    found = pilots.read_pilot(sweep, [tmp_path], planned=())
    assert found.degrees_of_freedom == 1 and found.paired and found.std == pytest.approx(0.05)
    pilots.show_power(sweep, sweep.points(), found, difference=0.05)
    said = capsys.readouterr().out
    assert "smallest attainable p 0.25" in said and "to show a difference of 0.05" in said and "seeds" in said


def test_a_pilot_whose_seeds_are_planned_is_warned_of(sweep: SweepFile, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for number, (seed, value) in enumerate([(0, 4.0), (10, 4.3)]):
        write_run(tmp_path / f"run{number}", 0.15, seed, value)
    pilots.read_pilot(sweep, [tmp_path], planned={10, 11, 12})
    assert "the pilot's seeds 10 are planned too" in capsys.readouterr().err
    pilots.read_pilot(sweep, [tmp_path], planned={11, 12})
    assert capsys.readouterr().err == ""


def test_tuned_runs_are_an_upper_bound(sweep: SweepFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """An arm whose own value is the common one has no runs of its own for it (local._plan)."""
    monkeypatch.setattr(plan, "is_finished", lambda point: point.seed == 10)
    points = sweep.points()
    cost = plan.Cost(points[0], 1e6, 50, 5000, 1e11, 0.5, seconds=60.0)
    short = [replace(cost, seconds=15.0, point=replace(points[0], seed=0))] * 4
    every = [replace(cost, point=point) for point in points]
    plan.show_costs(sweep, short, every, every, jobs=1)
    said = capsys.readouterr().out
    assert "Plan: 22 runs at most" in said and said.count(", tuned ") == 3 and "3 are finished" in said
    assert "7:00 to 16:00 for 19 runs at most" in said


def test_sigterm_removes_what_a_plan_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(plan, "_shapes", lambda points, place: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted):
        plan.predict([], 1)
    assert list(tmp_path.iterdir()) == []


def test_a_pilot_without_a_run_or_a_repetition_is_refused(sweep: SweepFile, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished run"):
        pilots.read_pilot(sweep, [tmp_path], planned=())
    write_run(tmp_path / "run", 0.15, 0, 4.0)
    with pytest.raises(UserError, match="two seeds"):
        pilots.read_pilot(sweep, [tmp_path / "run"], planned=())


def test_a_short_run_has_its_ten_validations() -> None:
    assert STEPS % 10 == 0
