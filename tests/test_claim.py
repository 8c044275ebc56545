"""Claims with a heartbeat: one owner on any machine; a dead one is taken over; an owner that slept through that ends at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlm_lab import claim
from mlm_lab.errors import Claimed

REPOSITORY = Path(__file__).resolve().parents[1]


def foreign_claim(folder: Path, number: int, seconds_ago: float) -> Path:
    """A claim of a process on another machine, whose last heartbeat was so long ago."""
    folder.mkdir(exist_ok=True)
    path = folder / f".claim-{number}"
    path.write_text("process 7 on elsewhere, since 2026-01-01 00:00:00\nanother-machine\n")
    os.utime(path, (time.time() - seconds_ago,) * 2)
    return path


def claims(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(".claim-*"))


def test_a_claim_says_who_holds_the_folder_and_goes_with_the_block(tmp_path: Path) -> None:
    with claim.hold(tmp_path):
        assert claim.holder(tmp_path).startswith(f"process {os.getpid()} on ")
    assert claim.holder(tmp_path) is None and claims(tmp_path) == []


def test_a_machine_that_answers_keeps_its_claim(tmp_path: Path) -> None:
    foreign_claim(tmp_path, 1, seconds_ago=claim.DEAD_AFTER_SECONDS / 2)
    assert claim.holder(tmp_path) == "process 7 on elsewhere, since 2026-01-01 00:00:00"
    with pytest.raises(Claimed, match="process 7 on elsewhere"), claim.hold(tmp_path):
        pass
    assert claims(tmp_path) == [".claim-1"]


def test_the_claim_of_a_machine_that_no_longer_answers_is_taken_over(tmp_path: Path) -> None:
    foreign_claim(tmp_path, 1, seconds_ago=claim.DEAD_AFTER_SECONDS + 1)
    assert claim.holder(tmp_path) is None
    with claim.hold(tmp_path):
        assert claims(tmp_path) == [".claim-2"]
    assert claims(tmp_path) == []


def test_a_claim_that_a_process_of_this_machine_left_is_taken_over_at_once(tmp_path: Path) -> None:
    code = f"import os, signal\nfrom mlm_lab import claim\nwith claim.hold({str(tmp_path)!r}): os.kill(os.getpid(), signal.SIGKILL)"
    code = code.replace(repr(str(tmp_path)), f"__import__('pathlib').Path({str(tmp_path)!r})")
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == -9
    assert claims(tmp_path) == [".claim-1"] and claim.holder(tmp_path) is None
    with claim.hold(tmp_path):
        assert claims(tmp_path) == [".claim-2"]


def test_of_two_machines_that_find_a_dead_claim_one_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = foreign_claim(tmp_path, 1, seconds_ago=1000)
    foreign_claim(tmp_path, 2, seconds_ago=0)  # the other was faster; our list is from before
    monkeypatch.setattr(claim, "_latest", lambda folder: (1, dead))
    with pytest.raises(Claimed, match="faster"), claim.hold(tmp_path):
        pass
    assert claims(tmp_path) == [".claim-1", ".claim-2"]


def test_a_list_of_the_folder_that_was_out_of_date_makes_no_second_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign_claim(tmp_path, 4, seconds_ago=0)
    monkeypatch.setattr(claim, "_latest", lambda folder: None)
    with pytest.raises(Claimed, match="faster"), claim.hold(tmp_path):
        pass
    assert claims(tmp_path) == [".claim-4"]


def test_the_owner_lets_its_heart_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 0.02)
    with claim.hold(tmp_path):
        os.utime(tmp_path / ".claim-1", (1, 1))
        deadline = time.monotonic() + 10
        while (tmp_path / ".claim-1").stat().st_mtime < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("by", ["another claim", "another claim of the same number", "nobody any more"])
def test_an_owner_that_was_taken_over_ends_and_writes_nothing(tmp_path: Path, by: str) -> None:
    code = f"""
import pathlib, time
from mlm_lab import claim
claim.HEARTBEAT_SECONDS = 0.05
folder = pathlib.Path({str(tmp_path)!r})
with claim.hold(folder):
    print("held", flush=True)
    time.sleep(30)
    (folder / "written").touch()
"""
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "held\n"
    if by == "another claim of the same number":
        foreign_claim(tmp_path, 9, 0).replace(tmp_path / ".claim-1")
    else:
        (tmp_path / ".claim-1").unlink()
        if by == "another claim":
            foreign_claim(tmp_path, 2, 0)
    assert owner.wait(timeout=30) == 75
    assert "taken over" in owner.stderr.read() and not (tmp_path / "written").exists()
    assert claims(tmp_path) == {"another claim": [".claim-2"], "another claim of the same number": [".claim-1"]}.get(by, [])


def test_a_folder_that_its_owner_removes_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 0.02)
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    folder = tmp_path / "run"
    with claim.hold(folder):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        time.sleep(0.2)
    assert ended == []


def test_where_a_file_system_has_no_locks_the_heartbeat_alone_keeps_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import filelock

    def no_locks(self: object, timeout: float) -> None:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(filelock.FileLock, "acquire", no_locks)
    with claim.hold(tmp_path):
        with pytest.raises(Claimed, match=f"process {os.getpid()}"), claim.hold(tmp_path):
            pass
        assert claims(tmp_path) == [".claim-1"]
