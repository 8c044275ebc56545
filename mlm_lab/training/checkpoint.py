"""Checkpoints that are either whole or not there: written under a temporary name, flushed to the disk, renamed to a name that holds
their SHA-256. The last good one and those before it are kept, so a damaged file costs some steps and never the run.

    checkpoints/step-00001200.3f9a....ckpt
    checkpoints/step-00001200.77c0....ckpt/   where each rank has a part of the model: the digest is that of the files' names, which hold
                 rank-0000.51ee....part       their own
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlm_lab.atomic import sync
from mlm_lab.console import warn
from mlm_lab.errors import DISK_FULL, UserError, require


@dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """When checkpoints are written, besides the one at the end and the one on Ctrl-C or SIGTERM."""

    every_steps: int | None
    """Steps between checkpoints; null: ten times a run."""
    keep: int
    """How many of the newest are kept; with 1 a damaged file has nothing to fall back to."""
    keep_weights_at: tuple[float, ...]
    """Shares of the run's steps after which its weights alone are kept for good, to be evaluated beside the last ones
    (evaluation.checkpoints)."""

    def __post_init__(self) -> None:
        require(
            ("every_steps", self.every_steps, self.every_steps is None or self.every_steps >= 1, "at least 1, or null"),
            ("keep", self.keep, self.keep >= 1, "at least 1"),
            (
                "keep_weights_at",
                self.keep_weights_at,
                all(0 < share < 1 for share in self.keep_weights_at),
                "a list of shares between 0 and 1",
            ),
        )

    def interval(self, total_steps: int) -> int:
        return self.every_steps or max(1, -(-total_steps // 10))

    def keeps_weights_at(self, step: int, total_steps: int) -> bool:
        return step < total_steps and step in {max(1, round(share * total_steps)) for share in self.keep_weights_at}


_NAME = re.compile(r"step-(\d+)\.([0-9a-f]{64})\.ckpt")
_PART = re.compile(r"rank-\d+\.([0-9a-f]{64})\.part")


class _Digesting:
    """A binary file for torch.save that hashes what passes through and remembers the operating system's own error."""

    def __init__(self, file: Any):
        self.file, self.digest, self.error = file, hashlib.sha256(), None

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error  # torch turns it into a RuntimeError without a reason
            raise

    def flush(self) -> None:
        self.file.flush()


def save(folder: Path, step: int, state: dict[str, Any], keep: int) -> Path:
    """Write a checkpoint of tensors and plain values, then remove all but the newest `keep`.

    Raises:
        UserError: the disk is full or not writable; the older checkpoints are untouched.
    """
    temporary = folder / f"step-{step:08d}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        final = folder / f"step-{step:08d}.{_write(temporary, state)}.ckpt"
        temporary.replace(final)
        sync(folder)  # the rename itself
    except OSError as error:
        _remove(temporary)
        raise _not_written(folder, error) from error
    _forget(folder, keep)
    return final


def save_parts(
    folder: Path, step: int, part: dict[str, Any], rank: int, keep: int, barrier: Callable[[], None], any_failed: Callable[[bool], bool]
) -> None:
    """Write a checkpoint of which each rank has a part. Every rank calls it.

    barrier: waits for all ranks. any_failed: whether it is so on some rank.
    Raises:
        UserError: the disk of some rank is full or not writable; the older checkpoints are untouched.
    """
    temporary, failure = folder / f"step-{step:08d}.tmp", None
    try:
        if rank == 0:
            _remove(temporary)  # what a killed start has left
            temporary.mkdir(parents=True)
    except OSError as error:
        failure = error
    barrier()
    try:
        if failure is None:
            unnamed = temporary / f"rank-{rank:04d}.tmp"
            unnamed.replace(temporary / f"rank-{rank:04d}.{_write(unnamed, part)}.part")
    except OSError as error:
        failure = error
    if any_failed(failure is not None):
        if rank == 0:
            _remove(temporary)
        raise _not_written(folder, failure or OSError(0, "another process of the run could not write its part"))
    if rank == 0:
        try:
            sync(temporary)
            temporary.replace(folder / f"step-{step:08d}.{_digest_of_names(temporary)}.ckpt")
            sync(folder)
        except OSError as error:
            _remove(temporary)
            raise _not_written(folder, error) from error
        _forget(folder, keep)
    barrier()


def load_last(folder: Path) -> dict[str, Any] | list[dict[str, Any]] | None:
    """The newest checkpoint that is whole, a list of parts where ranks had parts; None where there is none. Says which damaged ones it
    passed over, and leaves them."""
    found = _newest_first(folder)
    for path in found:
        if _is_whole(path):
            if path.is_dir():
                return [_read(part, mmap=True) for part in sorted(path.iterdir())]
            return _read(path)
        instead = "there is none before it, so the run starts from its beginning" if path == found[-1] else "using the one before it"
        warn(f"checkpoint {path.name[:13]} is damaged (its content does not match its SHA-256): {instead}")
    return None


def _read(path: Path, mmap: bool = False) -> Any:
    """Raises UserError for what is whole and yet none of ours: it is data, and is never run."""
    import pickle

    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise UserError(
            "this is no checkpoint of this program: it holds more than tensors and plain values (weights_only)",
            where=str(path),
            given=str(error).strip().partition("\n")[0][:200],
            fix="remove the file: the run goes on from the one before it",
        ) from None


def _write(path: Path, state: dict[str, Any]) -> str:
    """The state in a file that the disk has. Returns its SHA-256."""
    import torch

    with path.open("wb") as file:
        writer = _Digesting(file)
        try:
            torch.save(state, writer)
        except RuntimeError:
            raise writer.error or RuntimeError(f"cannot serialise the checkpoint {path}") from writer.error
        file.flush()
        os.fsync(file.fileno())
    return writer.digest.hexdigest()


def _is_whole(path: Path) -> bool:
    expected = _NAME.fullmatch(path.name)[2]
    if not path.is_dir():
        return _sha256(path) == expected
    parts = {part: _PART.fullmatch(part.name) for part in path.iterdir()}
    return _digest_of_names(path) == expected and all(match and _sha256(part) == match[1] for part, match in parts.items())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_names(folder: Path) -> str:
    return hashlib.sha256("\n".join(sorted(path.name for path in folder.iterdir())).encode()).hexdigest()


def _not_written(folder: Path, error: OSError) -> UserError:
    full = error.errno in DISK_FULL
    return UserError(
        "the disk is full: the checkpoint was not written" if full else f"the checkpoint was not written: {error.strerror}",
        where=str(folder),
        fix="free some space and run the same command again: it continues from the last checkpoint",
    )


def _forget(folder: Path, keep: int) -> None:
    for old in _newest_first(folder)[keep:]:
        _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _newest_first(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("step-*.ckpt") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (int(_NAME.fullmatch(path.name)[1]), path.stat().st_mtime_ns), reverse=True)
