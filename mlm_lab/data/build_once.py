"""A folder that is there whole or not at all, made by one process while the others wait."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mlm_lab import console
from mlm_lab.atomic import sync
from mlm_lab.errors import DISK_FULL, UserError

FIRST_SECONDS = 60.0
NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


@contextmanager
def build_once(folder: Path, what: str) -> Iterator[Path | None]:
    """Yield an empty folder to fill, which becomes `folder` at the end of the block; None where `folder` is there already.

    Whatever goes wrong inside the block, `folder` does not appear and the unfinished one is removed; what a killed process left is removed
    by the next. what: named in messages ("token store").

    Raises:
        UserError: the place cannot be written to, or the disk is full.
    """
    if folder.is_dir():
        yield None
        return
    _let_the_first_process_begin(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder, what):
            if folder.is_dir():
                yield None
                return
            yield from _fill(folder)
    except OSError as error:
        if error.errno in DISK_FULL:
            fix = "make room, or choose another place: cache_dir=FOLDER"
            raise UserError(f"the disk is full: the {what} could not be written", where=str(folder.parent), fix=fix) from None
        if error.errno in NOT_WRITABLE and error.filename and Path(error.filename).is_relative_to(folder.parent):
            message = f"the {what} cannot be written here: {error.strerror}"
            raise UserError(message, where=str(folder.parent), fix="choose another place: cache_dir=FOLDER") from None
        raise


def _let_the_first_process_begin(folder: Path) -> None:
    """Of the processes of a run that start together on a machine the first one prepares, so that its progress is seen; on a machine without
    a shared disk, and where the first does not come, another does."""
    if os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")) == "0":
        return
    until = time.monotonic() + FIRST_SECONDS
    while time.monotonic() < until and not (folder.is_dir() or folder.with_name(f"{folder.name}.unfinished").exists()):
        time.sleep(0.1)


def _fill(folder: Path) -> Iterator[Path]:
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir()
        yield unfinished
        for parent, _, names in os.walk(unfinished):
            for name in names:
                sync(Path(parent, name))
            sync(Path(parent))
        unfinished.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


@contextmanager
def _lock(folder: Path, what: str) -> Iterator[None]:
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=0.5)
    except Timeout:
        console.say(f"another process makes the same {what}: waiting for it ({folder})")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
