"""What a sweep notes of its points, where several runners plan and note the same ones."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mlm_lab.sweep.records import COMMON, TUNED, Records
from tests.sweep.stubs import StubPoint, points


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
