"""What a sweep notes of its points, where several runners plan and note the same ones; and what a study's table holds of runs whose folders
may be gone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mlm_lab.config import compose
from mlm_lab.report.results import write
from mlm_lab.run_config import config_hash, evaluations_asked
from mlm_lab.sweep.records import COMMON, TUNED, Records, finished_elsewhere, restore_step_times
from mlm_lab.training.step_times import known
from tests.sweep.stubs import StubPoint, points

WORDS = ["budget.steps=9", "evaluation.tasks=[pydocs_topic]"]


def table(folder: Path, row: dict[str, str]) -> Path:
    write(folder / "results.csv", [row])
    return folder


def test_a_row_holds_an_evaluation_under_its_own_settings_alone(tmp_path: Path) -> None:
    config = compose(WORDS)
    run_hash = config_hash(config)
    evaluated = " ".join(digest[:12] for digest in evaluations_asked(run_hash, config).values())
    row = {"config_hash": run_hash, "status": "finished", "pydocs_topic/accuracy": "0.5", "evaluated": evaluated}
    held = finished_elsewhere(table(tmp_path, row))[run_hash]
    assert held.has_all_of(run_hash, config)
    for word in ("evaluation.seeds=5", "evaluation.epochs=9", "evaluation.tasks=[pydocs_topic,pydocs_entities]"):
        assert not held.has_all_of(run_hash, compose([*WORDS, word])), word
    assert held.has_all_of(run_hash, compose([*WORDS, "evaluation.seeds=5", "stages=[prepare,pretrain]"]))


def test_a_table_of_before_goes_by_the_names_of_tasks(tmp_path: Path) -> None:
    config = compose(WORDS)
    run_hash = config_hash(config)
    row = {"config_hash": run_hash, "status": "finished", "pydocs_topic/accuracy": "0.5"}
    held = finished_elsewhere(table(tmp_path, row))[run_hash]
    assert held.has_all_of(run_hash, config) and not held.has_all_of(run_hash, compose([*WORDS, "evaluation.tasks=[pydocs_entities]"]))
    assert finished_elsewhere(table(tmp_path, row | {"status": "failed"})) == {}


def test_what_another_runner_notes_meanwhile_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One runner has read a record and is about to write it with one more table; another notes that the point has failed."""
    (point,) = points(tmp_path, "well")
    ours, theirs = Records(tmp_path, "study"), Records(tmp_path, "study")
    ours.plan(point, COMMON)
    other = threading.Thread(target=theirs.note, args=(point,), kwargs={"error": ["MemoryError"], "exit_code": 1})
    read = Records.read

    def read_while_the_other_notes(records: Records, of: StubPoint) -> dict:
        found = read(records, of)
        if records is ours:
            other.start()
            other.join(timeout=0.5)
        return found

    monkeypatch.setattr(Records, "read", read_while_the_other_notes)
    ours.plan(point, TUNED)
    monkeypatch.undo()
    other.join(timeout=60)
    about = ours.read(point)
    assert about["tables"] == [COMMON, TUNED] and (about["error"], about["exit_code"]) == (["MemoryError"], 1)


def test_a_record_that_stays_as_it_is_is_not_written(tmp_path: Path) -> None:
    (point,) = points(tmp_path, "well")
    records = Records(tmp_path, "study")
    records.plan(point, COMMON)
    (file,) = (records.path / "points").iterdir()
    before = file.stat().st_ino
    records.plan(point, COMMON)
    records.note(point, error=None)
    assert file.stat().st_ino == before and records.read(point)["tables"] == [COMMON]


def test_what_hours_were_turned_into_steps_by_is_restored(tmp_path: Path) -> None:
    rows = [
        ("a" * 64, "finished", "k" * 64, "0.25"),
        ("b" * 64, "failed", "l" * 64, "0.5"),
        ("c" * 64, "finished", "", ""),
        ("d" * 64, "finished", "m" * 64, "0 25"),
    ]
    lines = ["config_hash,status,step_time/key,step_time/seconds", *(",".join(row) for row in rows)]
    (tmp_path / "results.csv").write_text("\n".join(lines) + "\n")
    restore_step_times(tmp_path, tmp_path / "runs")
    assert known(tmp_path / "runs", "k" * 64) == 0.25 and known(tmp_path / "runs", "l" * 64) is None
    assert known(tmp_path / "runs", "m" * 64) is None
    restore_step_times(tmp_path / "nowhere", tmp_path / "runs")
