"""Commands in processes that die at a chosen moment: before the n-th time that they change a file, or in the middle of writing one.

A server process imports what a run needs once; each command is forked from it, so that starting one takes no seconds. The moments are those
of Python's own audit events, so that nothing in the program knows of them.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PRELOADED = ("lightning", "mlm_lab.training.callbacks", "mlm_lab.stages.pretrain", "mlm_lab.stages.evaluate", "mlm_lab.config")
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Ended(NamedTuple):
    code: int
    """As of multiprocessing: -9 for a process that was killed."""
    said: str
    moments: list[str]
    """"event path" of each change, in order."""


def start(
    place: Path,
    words: Sequence[str],
    die_at: int | None = None,
    in_write: int | None = None,
    door: str = "mlm_lab.__main__",
    said: str = "said.txt",
    patches: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Start a door's command in a working directory, which collects what it says in a file. Returns the process.

    die_at: the number of the change before which it dies by SIGKILL. in_write: the number of the write within checkpoints in which it does.
    patches: "module:name" -> the value that it has there.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    place.mkdir(parents=True, exist_ok=True)
    arguments = (place, list(words), die_at, in_write, door, said, dict(patches or {}), dict(environment or {}))
    process = context.Process(target=_go, args=arguments)
    process.start()
    return process


def end(process: Any, place: Path, said: str = "said.txt", seconds: float = 600) -> Ended:
    """Wait for its end."""
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"not ended after {seconds} seconds: {_read(place / said)}")
    return Ended(process.exitcode, _read(place / said), _read(place / f"{said}.moments").splitlines())


def command(place: Path, words: Sequence[str], **settings: Any) -> Ended:
    """Run it to its end."""
    return end(start(place, words, **settings), place, settings.get("said", "said.txt"))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _go(
    place: Path,
    words: list[str],
    die_at: int | None,
    in_write: int | None,
    door: str,
    said: str,
    patches: dict[str, Any],
    environment: dict[str, str],
) -> None:
    file = os.open(place / said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout, sys.stderr = open(1, "w", buffering=1, closefd=False), open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(place)
    multiprocessing.set_start_method("fork", force=True)  # workers as a command has them, with what is patched here
    os.environ.pop("WANDB_SERVICE", None)  # of a test of this process that has used W&B: the command has a service of its own
    os.environ.update(environment)
    moments = os.open(f"{said}.moments", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for name, value in patches.items():
        module, _, path = name.partition(":")
        *parents, attribute = path.split(".")
        owner: Any = importlib.import_module(module)
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, attribute, value)
    main, own, seen = importlib.import_module(door).main, os.getpid(), 0

    def watch(event: str, arguments: tuple) -> None:
        nonlocal seen
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITING:
                return
        elif event in CHANGES:
            path = arguments[0]
        else:
            return
        path = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if not any(part in path for part in ("cache/", "runs", "experiments/")) or os.getpid() != own or path.endswith(".lock"):
            return
        if seen == die_at:
            os.kill(own, signal.SIGKILL)
        seen += 1
        os.write(moments, f"{event} {path}\n".encode())

    if in_write is not None:
        _die_in_write(in_write)
    sys.addaudithook(watch)
    code = main(words)
    sys.stdout.flush()
    os._exit(code)


def _die_in_write(number: int) -> None:
    from mlm_lab.training import checkpoint

    write, done = checkpoint._Digesting.write, 0

    def counted(self: checkpoint._Digesting, data: bytes) -> int:
        nonlocal done
        if done == number:
            self.file.write(data[: len(data) // 2])
            self.file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        return write(self, data)

    checkpoint._Digesting.write = counted
