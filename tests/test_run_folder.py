"""The run folder: an atomic summary, one process at a time, nothing from other ranks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlm_lab.errors import UserError
from mlm_lab.run_folder import RunFolder

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.of(tmp_path / "runs", "0123456789abcdef" * 4)


def test_its_name_is_the_first_twelve_digits_of_the_hash_and_nothing_is_made_beforehand(folder: RunFolder) -> None:
    assert folder.run_id == "0123456789ab"
    assert folder.read_summary() == {}
    assert folder.evaluation_folder("cola", 1, "f" * 64) == folder.path / "evaluation" / "cola" / "seed_1-ffffffffffff"
    assert not folder.path.exists()


def test_an_update_keeps_the_other_fields_and_the_other_tasks(folder: RunFolder) -> None:
    folder.update_summary(status="running", evaluation={"cola": {"mcc": {"n": 3}}}, tags=["a"])
    folder.update_summary(evaluation={"rte": {"accuracy": {"n": 1}}}, tags=["b"])
    folder.update_summary(evaluation={"cola": {"mcc": {"n": 5}}})
    summary = folder.read_summary()
    assert summary["status"] == "running" and summary["tags"] == ["b"]
    assert summary["evaluation"] == {"cola": {"mcc": {"n": 5}}, "rte": {"accuracy": {"n": 1}}}


def test_numbers_of_numpy_are_numbers_and_what_is_not_finite_is_null(folder: RunFolder) -> None:
    folder.update_summary(
        loss=np.float32(0.5), steps=np.int64(3), values=np.array([1, 2]), bad=[float("nan"), float("inf")], path=Path("a")
    )
    text = folder.summary_json.read_text()
    assert json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON")) == {
        "loss": 0.5,
        "steps": 3,
        "values": [1, 2],
        "bad": [None, None],
        "path": "a",
    }


def test_a_write_that_fails_leaves_the_old_summary_and_no_other_file(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.update_summary(steps=1)

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        folder.update_summary(steps=2)
    assert folder.read_summary() == {"steps": 1}
    assert [path.name for path in folder.path.iterdir()] == ["summary.json"]


def test_a_value_that_json_cannot_hold_is_refused_before_anything_is_written(folder: RunFolder) -> None:
    with pytest.raises(TypeError, match="object"):
        folder.update_summary(thing=object())
    assert not folder.path.exists()


def test_a_damaged_summary_is_a_clear_error(folder: RunFolder) -> None:
    folder.update_summary(steps=1)
    folder.summary_json.write_text('{"steps": ')
    with pytest.raises(UserError, match=r"damaged\n.*summary\.json"):
        folder.read_summary()


def test_a_second_process_is_told_who_holds_the_run(folder: RunFolder) -> None:
    code = f"from mlm_lab.run_folder import RunFolder\nwith RunFolder({str(folder.path)!r}).claim(): print('claimed')"
    with folder.claim():
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
        assert second.stdout == ""
        assert f"process {os.getpid()} on {socket.gethostname()}" in second.stderr and str(folder.path) in second.stderr
    third = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert third.stdout == "claimed\n"


def test_the_claim_ends_with_the_process_however_it_ends(folder: RunFolder) -> None:
    claim = f"with RunFolder({str(folder.path)!r}).claim(): os.kill(os.getpid(), signal.SIGKILL)"
    code = f"import os, signal\nfrom mlm_lab.run_folder import RunFolder\n{claim}"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == -9
    with folder.claim():
        assert f"process {os.getpid()} on" in folder.claimed_by()
    assert folder.claimed_by() is None


def test_other_ranks_pass_through_and_write_nothing(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder.claim():
        folder.update_summary(steps=1)
        monkeypatch.setenv("LOCAL_RANK", "1")
        with folder.claim():
            folder.update_summary(steps=2)
    assert folder.read_summary() == {"steps": 1}


def test_overrides_keep_each_start_that_differed(folder: RunFolder) -> None:
    for overrides in [("seed=1",), ("seed=1",), ("seed=1", "tags=[x]")]:
        folder.record_start("seed: 1\n", overrides)
    assert (folder.path / "overrides.txt").read_text() == "seed=1\nseed=1 tags=[x]\n"
    assert (folder.path / "config.yaml").read_text() == "seed: 1\n"
