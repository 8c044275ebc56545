"""Who works on a run folder: one process of one machine. A claim whose process is gone, or whose machine no longer answers, is taken over.

    .lock       the operating system's lock: ends with the process, at once; on a shared file system it may not reach other machines
    .claim-3    the heartbeat: touched every ten seconds by its owner, who took over from the dead .claim-2

filelock has the first, no core requirement the second.

A claim is made by creating its file, which succeeds on one machine only, and its age is told by the file system's own clock, so that
machines need not agree on the time. An owner that finds its claim taken over (a machine that was suspended) ends at once, writing nothing.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlm_lab.errors import Claimed

HEARTBEAT_SECONDS = 10.0
DEAD_AFTER_SECONDS = 60.0
"""Without a heartbeat for so long, a claim of another machine is dead."""
NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP))
"""What a file system answers that has no locks."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold the folder, which is made if need be. The claim ends with the process, however it ends.

    Raises Claimed where another process holds it, naming its process id and host.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _local_lock(folder) as is_locked:
        heartbeat = _Heartbeat(_take(folder, is_locked))
        try:
            yield
        finally:
            heartbeat.stop()


def holder(folder: Path) -> str | None:
    """The process that holds the folder now ("process 12 on host, since ..."), as far as its heartbeat says; None where none does."""
    latest = _latest(folder)
    if latest is None:
        return None
    found = _Claim.read(latest[1], folder)
    return found.about if found is not None and found.is_alive(is_locked=False) else None


class _Claim:
    """What a claim's file says. about: for people. age: seconds since the last heartbeat."""

    def __init__(self, about: str, machine: str, process: int, age: float):
        self.about, self.machine, self.process, self.age = about, machine, process, age

    @classmethod
    def read(cls, path: Path, folder: Path) -> _Claim | None:
        """None where it has been given up meanwhile. Opening the file makes a network file system look at it anew."""
        try:
            with open(path, encoding="utf-8") as file:
                about, _, machine = file.read().strip().partition("\n")
                touched = os.fstat(file.fileno()).st_mtime
            with tempfile.TemporaryFile(dir=folder) as now:
                age = os.fstat(now.fileno()).st_mtime - touched
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                return None
            raise
        process = re.match(r"process (\d+)", about)
        return cls(about or "a process that has not said its id yet", machine, int(process[1]) if process else 0, age)

    def is_alive(self, is_locked: bool) -> bool:
        """is_locked: whether we have the lock, which no living process of this machine can have then."""
        if self.machine == machine() and (is_locked or not process_exists(self.process)):
            return False
        return self.age < DEAD_AFTER_SECONDS


class _Heartbeat:
    """Touches the claim from a thread of its own until `stop`, which gives the claim up."""

    def __init__(self, path: Path):
        self._path, self._file, self._over = path, os.open(path, os.O_RDONLY), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="claim", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS):
            try:
                os.utime(self._path)
                is_ours = os.path.samestat(os.stat(self._path), os.fstat(self._file))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    continue  # the file system does not answer just now
                is_ours = not self._path.parent.exists()  # the whole folder was removed: there is nothing left to share
            if not is_ours:
                os.write(2, f"another process has taken over {self._path.parent}, since this one did not answer\n".encode())
                os._exit(Claimed.exit_code)


def _take(folder: Path, is_locked: bool) -> Path:
    """Make our claim, above that of a dead process. Raises Claimed."""
    latest = _latest(folder)
    if latest is not None:
        found = _Claim.read(latest[1], folder)
        if found is not None and found.is_alive(is_locked):
            raise _refusal(folder, found.about)
    number = latest[0] + 1 if latest else 1
    path = folder / f".claim-{number}"
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n{machine()}\n")
    except FileExistsError:
        raise _refusal(folder, "a process that was faster") from None
    for other, old in _all(folder):
        if other > number:  # the folder's list was out of date when we looked first
            path.unlink(missing_ok=True)
            raise _refusal(folder, "a process that was faster")
        if other < number:
            old.unlink(missing_ok=True)
    return path


def _all(folder: Path) -> list[tuple[int, Path]]:
    found = [(re.fullmatch(r"\.claim-(\d+)", path.name), path) for path in folder.glob(".claim-*")]
    return sorted((int(match[1]), path) for match, path in found if match)


def _latest(folder: Path) -> tuple[int, Path] | None:
    return next(reversed(_all(folder)), None)


@contextmanager
def _local_lock(folder: Path) -> Iterator[bool]:
    """Hold the operating system's lock; False where this file system has none. Raises Claimed."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        latest = _latest(folder)
        found = _Claim.read(latest[1], folder) if latest else None
        raise _refusal(folder, found.about if found else "a process that has not said its id yet") from None
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _refusal(folder: Path, by: str) -> Claimed:
    return Claimed(
        "another process is working on this run",
        where=str(folder),
        given=by,
        fix="wait for it, stop it, or change the config (another seed makes another run)",
    )


def machine() -> str:
    """The running kernel: containers on one machine share its locks. Elsewhere the host's name."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else socket.gethostname()


def process_exists(process: int) -> bool:
    """Whether a process of this machine has that id."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return process > 0
