"""`python -m mlm_lab.sweep`: what it answers, and a small sweep from the file to its run folders with real processes."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlm_lab.sweep import __main__ as door
from mlm_lab.sweep import local
from tests.sweep.sweeps_for_tests import GOOD, write

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = "".join(f"The {('old', 'new', 'quiet', 'small')[i % 4]} bird number {i} sings. It flies over the river {i}.\n\n" for i in range(80))
SMALL = [
    "data=text",
    "data.files=text.txt",
    "tokenizer.vocab_size=400",
    "model.hidden_size=16",
    "model.num_heads=2",
    "model.num_layers=1",
    "model.intermediate_size=16",
    "max_length=16",
    "batch_size=8",
    "budget.steps=2",
    "validation.sequences=8",
    "trainer=cpu",
    "output_dir=runs",
    "cache_dir=cache",
]
WITHOUT_TRAINING = "stages=[prepare]"
"""A point that only makes its token store: a second, and no torch."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return write(tmp_path)


def start(*words: object) -> subprocess.Popen:
    command = [sys.executable, "-m", "mlm_lab.sweep", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def summaries(folder: Path) -> dict[str, dict]:
    return {path.parent.name: json.loads(path.read_text()) for path in (folder / "runs").glob("*/summary.json")}


def test_help_answers_and_a_wrong_command_line_is_told(place: Path, capsys: pytest.CaptureFixture) -> None:
    assert door.main(["--help"]) == 0 and "--jobs N" in capsys.readouterr().out
    for words, message in [
        ([], "name one sweep file"),
        (["a.yaml", "b.yaml"], "name one sweep file"),
        ([place, "--plan", "--run"], "--plan and --run: one of them"),
        ([place, "--pilot", "runs"], "--pilot goes with --plan"),
        ([place, "--run", "--jobs", "0"], "--jobs 0: must be at least 1"),
        ([place, "--rnu"], "unrecognized arguments: --rnu"),
        (["none.yaml"], "the sweep file cannot be read"),
    ]:
        assert door.main(list(map(str, words))) == 2
        assert message in capsys.readouterr().err


def test_without_an_option_the_arms_are_shown_and_nothing_is_written(place: Path, capsys: pytest.CaptureFixture) -> None:
    assert door.main([str(place), *SMALL, "seed=0,1"]) == 0
    shown = capsys.readouterr().out
    assert "Which masking ratio serves best?" in shown and "4 points" in shown
    assert "mask_ratio=0.15  0, 1   0 of 2" in shown and "--run --jobs 2 data=text" in shown and "seed=0,1" in shown
    assert not Path("runs").exists() and not Path("cache").exists()


def test_pilot_folders_and_words_may_follow_each_other(place: Path) -> None:
    options = door._parse([str(place), "--plan", "--pilot", "runs/a", "runs/b", "seed=1"])
    assert options.pilot == [Path("runs/a"), Path("runs/b")] and options.words == ["seed=1"] and options.file == place


def test_bad_input_is_refused_before_anything_runs(place: Path, capsys: pytest.CaptureFixture) -> None:
    assert door.main([str(place), "--run", *SMALL, "data.files=none.txt"]) == 2
    assert "no such file" in capsys.readouterr().err and not Path("runs").exists()


def test_a_sweep_runs_and_goes_on_skipping_what_is_finished(place: Path, tmp_path: Path) -> None:
    first = start(place, "--run", "--jobs", 2, *SMALL, WITHOUT_TRAINING, "seed=0", "study=one")
    out, err = first.communicate(timeout=120)
    assert first.returncode == 0, err
    assert "2 of 2 points are finished" in out and "next: python -m mlm_lab.report one" in out
    second = start(place, "--run", "--jobs", 2, *SMALL, WITHOUT_TRAINING, "seed=0,1", "study=two")
    out, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    assert "4 of 4 points are finished (2 were before)" in out
    found = summaries(tmp_path)
    assert sorted(map(str, (summary["studies"] for summary in found.values()))) == ["['one', 'two']"] * 2 + ["['two']"] * 2
    planned = [json.loads(path.read_text()) for path in Path("runs/sweeps/two/points").glob("*.json")]
    assert {(about["arm"], about["seed"]) for about in planned} == {(f"mask_ratio={r}", s) for r in (0.15, 0.4) for s in (0, 1)}
    assert {about["config_hash"] for about in planned} == {summary["config_hash"] for summary in found.values()}
    assert all(about["tables"] == ["common"] and about["error"] is None for about in planned)


def test_a_point_whose_numbers_are_in_results_csv_is_not_run_again(place: Path, capsys: pytest.CaptureFixture) -> None:
    from mlm_lab.sweep.reading import read

    words = [*SMALL, "seed=0", "objective.mask_ratio=0.4"]
    (point,) = read(place).with_words(words).points()
    Path("experiments/good").mkdir(parents=True)
    Path("experiments/good/results.csv").write_text(f"config_hash,status,val/loss\n{point.config_hash},finished,3.5\n")
    assert local.run(read(place).with_words(words), [point], 1) == 0
    assert "1 of 1 points are finished (1 were before)" in capsys.readouterr().out and not point.folder.path.exists()
    local.show(read(place).with_words(words), [point])
    assert "1 of 1" in capsys.readouterr().out


def test_rates_that_the_studys_folder_has_are_not_searched_again(place: Path, capsys: pytest.CaptureFixture) -> None:
    """The short runs' folders are gone: what they chose stands in tune.json, and the points at the chosen rates in results.csv."""
    from mlm_lab.report.records import TUNE_JSON
    from mlm_lab.sweep import tune
    from mlm_lab.sweep.reading import read
    from mlm_lab.training.step_times import known

    tuned = "tune: {key: optim.peak_lr, values: [0.001, 0.004], metric: val/loss, goal: minimize, seed: 9, budget_share: 0.5}"
    text = place.read_text().replace("ordered: true", tuned)
    place.write_text(text)
    sweep = read(place).with_words([*SMALL, "seed=0", "objective.mask_ratio=0.4"])
    (point,) = sweep.points()
    tried = tune.trials(sweep.study.tune, [point])
    for trial, loss in zip(tried[point.arm].values(), (3.0, 2.0), strict=True):
        trial.folder.update_summary(status="finished", metrics={"val/loss": loss}, tokens=1, flops={"total": 1.0}, seconds=1.0)
    chosen = tune.choose(sweep.study.tune, [point], tried)
    for trial in tried[point.arm].values():
        shutil.rmtree(trial.folder.path)
    (own,) = tune.tuned_points(chosen, [point])
    folder = Path("experiments/good")
    folder.mkdir(parents=True)
    (folder / TUNE_JSON).write_text(json.dumps(chosen))
    rows = [f"{point.config_hash},finished,3.5,{'k' * 64},0.25", f"{own.config_hash},finished,3.4,,"]
    (folder / "results.csv").write_text("\n".join(["config_hash,status,val/loss,step_time/key,step_time/seconds", *rows]) + "\n")
    assert local.run(sweep, [point], 1) == 0
    out = capsys.readouterr().out
    assert known(Path("runs"), "k" * 64) == 0.25, "hours are turned into steps as in the runs that are gone"
    assert "mask_ratio=0.4 from experiments/good/tune.json" in out and "2 of 2 points are finished (2 were before)" in out
    assert json.loads(Path("runs/sweeps/good/tune.json").read_text()) == json.loads(json.dumps(chosen))


@pytest.mark.slow
def test_eight_points_that_start_together_build_the_token_store_once(place: Path, tmp_path: Path) -> None:
    process = start(place, "--run", "--jobs", 8, *SMALL, WITHOUT_TRAINING, "seed=0,1,2,3")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "8 of 8 points are finished" in out, err
    logs = [path.read_text() for path in (tmp_path / "runs" / "sweeps" / "good" / "logs").glob("*.log")]
    assert len(logs) == 8 and sum("Tokenising" in log for log in logs) == 1
    assert len(list((tmp_path / "cache" / "stores").glob("[0-9a-f]*[0-9a-f]"))) == 1


@pytest.mark.slow
def test_a_failed_point_stops_no_other(place: Path, tmp_path: Path) -> None:
    """A learning rate that makes the loss infinite, beside one that does not."""
    text = GOOD.replace("objective.mask_ratio:\n    values: [0.15, 0.4]", "optim.peak_lr:\n    values: [0.001, 1.0e+30]")
    text = text.replace("baseline: 0.15, contrast: 0.4", "baseline: 0.001, contrast: 1.0e+30")
    place.write_text(text)
    process = start(place, "--run", *SMALL, "budget.steps=20", "trainer.log_every_steps=1", "optim.gradient_clip=null", "seed=0")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1 and "1 of 2 points are finished, 1 failed" in out
    assert "is not finite" in err and "the same command tries the failed ones again" in out
    assert sorted(summary["status"] for summary in summaries(tmp_path).values()) == ["failed", "finished"]


@pytest.mark.slow
def test_24_points_survive_five_kills_of_the_runner_and_none_is_lost_or_doubled(place: Path, tmp_path: Path) -> None:
    words = [place, "--run", "--jobs", 2, *SMALL, "seed=0,1,2,3,4,5,6,7,8,9,10,11"]
    generator = random.Random(1)
    for _ in range(5):
        killed = start(*words)
        time.sleep(10 + 25 * generator.random())
        killed.kill()
        killed.communicate()
    process = start(*words)
    out, err = process.communicate(timeout=1200)
    assert process.returncode == 0 and "24 of 24 points are finished" in out, err
    found = summaries(tmp_path)
    assert len(found) == 24 and {summary["status"] for summary in found.values()} == {"finished"}
    for name, summary in found.items():
        log = (tmp_path / "runs" / "sweeps" / "good" / "logs" / f"{name}.log").read_text()
        assert log.count("run folder: ") == 1, "it came to its end once"
        rows = (tmp_path / "runs" / name / "metrics.csv").read_text().splitlines()[1:]
        assert [row.partition(",")[0] for row in rows] == sorted({row.partition(",")[0] for row in rows}) and summary["steps"] == 2
    planned = json.loads(next(Path("runs/sweeps/good/points").glob("*.json")).read_text())
    whole = [sys.executable, "-m", "mlm_lab", *planned["overrides"], "output_dir=whole"]
    subprocess.run(whole, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, check=True)
    (path,) = Path("whole").glob("*/summary.json")
    assert json.loads(path.read_text())["weights_sha256"] == found[path.parent.name]["weights_sha256"], "bit for bit"
