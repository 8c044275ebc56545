"""Files that are written whole: what a reader meets, what a failure leaves, and that no two writers meet in one temporary file."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

from mlm_lab import atomic
from mlm_lab.atomic import locked, replacing, write_text

REPOSITORY = Path(__file__).resolve().parents[1]


def test_a_text_is_written_as_it_is_and_folders_are_made(tmp_path: Path) -> None:
    write_text(tmp_path / "a/b/c.csv", "größer\r\nkleiner\n")
    assert (tmp_path / "a/b/c.csv").read_bytes() == "größer\r\nkleiner\n".encode()
    assert os.listdir(tmp_path / "a/b") == ["c.csv"]


@pytest.mark.parametrize("failing", ["in the block", "at the disk"])
def test_a_failure_leaves_the_old_content_and_nothing_else(tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "kept.txt"
    write_text(file, "old")
    if failing == "at the disk":
        monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"), replacing(file) as beside:
        beside.write_text("half")
        assert file.read_text() == "old"
        if failing == "in the block":
            full_disk()
    assert file.read_text() == "old" and os.listdir(tmp_path) == ["kept.txt"]


def test_what_cannot_be_encoded_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a/b.txt", "\udc80")
    assert not (tmp_path / "a").exists()


def test_two_writers_with_one_process_id_do_not_meet_in_a_temporary_file(tmp_path: Path) -> None:
    """As on two machines. Both are in the middle of it; the one that ends last stands, whole."""
    with replacing(tmp_path / "file") as ours:
        ours.write_text("ours, the longer one")
        with replacing(tmp_path / "file") as theirs:
            theirs.write_text("theirs")
        assert (tmp_path / "file").read_text() == "theirs" and ours != theirs
    assert (tmp_path / "file").read_text() == "ours, the longer one"


def test_what_a_killed_process_has_left_is_removed_and_what_another_host_is_at_is_not(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from mlm_lab.atomic import replacing
with replacing(Path({str(tmp_path / "file")!r})) as beside:
    beside.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY)
    (left,) = tmp_path.iterdir()
    elsewhere = tmp_path / f".file.0badc0de-{left.name.split('-')[1]}-00000000"
    elsewhere.write_text("half")
    with replacing(tmp_path / "file") as ours:
        ours.write_text("ours")
        write_text(tmp_path / "file", "a thread of the same process")
    assert killed.returncode == -9 and sorted(os.listdir(tmp_path)) == [elsewhere.name, "file"]
    assert (tmp_path / "file").read_text() == "ours"


def test_a_name_of_its_own_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "large.tmp").write_text("what a kill has left")
    write_text(tmp_path / "large", "new", temporary="large.tmp")
    assert (tmp_path / "large").read_text() == "new" and os.listdir(tmp_path) == ["large"]


@pytest.mark.parametrize("sync_folder", [False, True])
def test_the_disk_has_the_file_before_it_is_renamed_and_then_the_name(
    tmp_path: Path, sync_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    sync, replace = atomic.sync, os.replace
    monkeypatch.setattr(atomic, "sync", lambda path: (done.append("folder" if path.is_dir() else "file"), sync(path)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("rename"), replace(*paths)))
    write_text(tmp_path / "file", "text", sync_folder=sync_folder)
    assert done == ["file", "rename", *["folder"] * sync_folder]


def test_another_process_waits_for_the_lock(tmp_path: Path) -> None:
    code = f"from pathlib import Path\nfrom mlm_lab.atomic import locked\nwith locked(Path({str(tmp_path / 'lock')!r})): print('in')"
    with locked(tmp_path / "lock"):
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        with pytest.raises(subprocess.TimeoutExpired):
            other.communicate(timeout=1)
    assert other.communicate(timeout=60)[0] == "in\n"


def test_where_a_file_system_has_no_locks_the_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", no_locks)
    with locked(tmp_path / "lock"):
        pass
