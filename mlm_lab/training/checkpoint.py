"""Checkpoints that are either whole or not there: written under a temporary name, flushed to the disk, renamed to a name that holds
their SHA-256. The last good one and those before it are kept, so a damaged file costs some steps and never the run.

    checkpoints/step-00001200.3f9a....ckpt
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlm_lab.console import warn
from mlm_lab.data.build_once import sync
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
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"step-{step:08d}.tmp"
    try:
        with temporary.open("wb") as file:
            writer = _Digesting(file)
            try:
                torch.save(state, writer)
            except RuntimeError:
                raise writer.error or RuntimeError(f"cannot serialise the checkpoint of step {step}") from writer.error
            file.flush()
            os.fsync(file.fileno())
        final = folder / f"step-{step:08d}.{writer.digest.hexdigest()}.ckpt"
        temporary.replace(final)
        sync(folder)  # the rename itself
    except OSError as error:
        temporary.unlink(missing_ok=True)
        full = error.errno in DISK_FULL
        raise UserError(
            "the disk is full: the checkpoint was not written" if full else f"the checkpoint was not written: {error.strerror}",
            where=str(folder),
            fix="free some space and run the same command again: it continues from the last checkpoint",
        ) from error
    for old in _newest_first(folder)[keep:]:
        old.unlink(missing_ok=True)
    return final


def load_last(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that is whole, or None where there is none. Says which damaged ones it passed over, and leaves them."""
    import torch

    for path in _newest_first(folder):
        with path.open("rb") as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == _NAME.fullmatch(path.name)[2]
        if whole:
            return torch.load(path, map_location="cpu", weights_only=True)
        warn(f"checkpoint {path.name[:13]} is damaged (its content does not match its SHA-256): using the one before it")
    return None


def _newest_first(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("step-*.ckpt") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (int(_NAME.fullmatch(path.name)[1]), path.stat().st_mtime_ns), reverse=True)
