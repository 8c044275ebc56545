"""Files that are written whole: a reader, a crash or another machine meets the old content or the new one, never a part.

    a temporary name beside the file -> write -> the disk has it (fsync) -> os.replace -> the disk has the new name, where that is asked for

The temporary name is hidden and of 64 random bits, so that two hosts that share the folder never meet in one, whatever their process ids.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP))
"""What a file system answers that has no locks."""


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
    beside = path.with_name(temporary or f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield beside
        sync(beside)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if sync_folder:
        sync(path.parent)


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
    lock = FileLock(file)
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
