"""Files that are written whole: a reader, a crash or another machine meets the old content or the new one, never a part.

    a temporary name beside the file -> write -> the disk has it (fsync) -> os.replace -> the disk has the new name, where that is asked for

The temporary name is hidden and has the host, the process and a random part, so that two hosts that share the folder never meet in one,
whatever their process ids, and what a killed process has left is removed when the file is written next on its host.
"""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from mlm_lab.claim import NO_LOCKS, machine, process_exists


@contextmanager
def replacing(path: Path, *, sync_folder: bool = False, temporary: str | None = None) -> Iterator[Path]:
    """The path that the block writes to; it takes the place of `path` at the block's end. Where the block fails `path` stays as it is, and
    nothing is left beside it. Folders that are missing are made.

    Args:
        sync_folder: whether the disk has the new name too when this returns: for what the next step relies on after a loss of power.
        temporary: a name that is the same each time, for large files of one writer (a run's, under its claim): what a kill has left is
            written over.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(path)
    beside = path.with_name(temporary or f".{path.name}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield beside
        sync(beside)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if sync_folder:
        sync(path.parent)


def _remove_left(path: Path) -> None:
    """What processes of this host were killed in the writing of."""
    before = f".{path.name}.{_host()}-"
    for left in path.parent.glob(f"{glob.escape(before)}*"):
        writer = left.name.removeprefix(before).partition("-")[0]
        if writer.isdecimal() and not process_exists(int(writer)):
            left.unlink(missing_ok=True)


@cache
def _host() -> str:
    """Eight digits of where a process id means one process: the machine and, since containers of one share that, the processes that can be
    seen."""
    seen = machine()
    with suppress(OSError):  # not on Linux
        seen += os.readlink("/proc/self/ns/pid")
    return blake2b(seen.encode(), digest_size=4).hexdigest()


def write_text(path: Path, text: str, *, sync_folder: bool = False, temporary: str | None = None) -> None:
    """The text in UTF-8, its line ends as they are. See `replacing`."""
    content = text.encode("utf-8")  # before anything is made
    with replacing(path, sync_folder=sync_folder, temporary=temporary) as beside:
        beside.write_bytes(content)


def sync(path: Path) -> None:
    """Have the disk hold the file or folder before a rename says that it does."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold `file` as a lock, over processes and machines, while what it stands for is read and written anew; others wait. Where the file
    system has no locks the block runs all the same: what it writes is whole, and the last one stands."""
    from filelock import FileLock

    file.parent.mkdir(parents=True, exist_ok=True)
    lock: FileLock | None = FileLock(file)
    try:
        lock.acquire()
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
