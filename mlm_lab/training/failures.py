"""What ends a run from outside of it, in words: memory that does not suffice, a data worker or another process that is gone or stuck.

torch says these with a RuntimeError and a text of its own; what is not known here stays as it is, with its traceback.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from subprocess import Popen

from mlm_lab.errors import UserError
from mlm_lab.processes import end_with
from mlm_lab.ranks import is_main_process

_NO_MEMORY = r"out of memory|can't allocate memory|not enough memory|RESOURCE_EXHAUSTED"
_WORKER_STUCK = r"DataLoader timed out"
_WORKER_GONE = r"DataLoader worker \(pid"
_RANK_STUCK = r"(?i)timed out (waiting|after)|Timeout\(ms\)|wait timeout"
_RANK_GONE = r"Connection (closed|reset) by peer|Broken pipe|remote process exited|NCCL (error|communicator)|Socket closed"
IN_PARTS = "trainer.micro_batch_size=N computes a step in parts, with the same gradient; or a smaller batch_size, max_length or model"
CONTINUES = "run the same command again: it continues from the last checkpoint"
WATCH_SECONDS, ENDING_SECONDS = 0.2, 2.0


@contextmanager
def explained(sizes: str, timeout_seconds: float, rank_count: int = 1, smaller: str = IN_PARTS) -> Iterator[None]:
    """Turn what a run cannot help into a UserError.

    sizes: the keys that memory depends on, with their values. rank_count: processes of the run. smaller: what takes less memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        found = explain(error, sizes, timeout_seconds, rank_count, smaller)
        if found is None:
            raise
        raise found from error


def explain(error: BaseException, sizes: str, timeout_seconds: float, rank_count: int = 1, smaller: str = IN_PARTS) -> UserError | None:
    """The error in words; None where it is none of these."""
    text, first = str(error), str(error).strip().partition("\n")[0]
    if isinstance(error, MemoryError) or re.search(_NO_MEMORY, text):
        return UserError("out of memory", where=first or None, given=sizes, fix=smaller)
    if re.search(_WORKER_STUCK, text):
        return UserError(
            f"a data worker has not answered for {timeout_seconds:g} seconds",
            given="trainer.timeout_seconds",
            fix=f"look at the disk that the token store is on, or set trainer.num_workers=0; {CONTINUES}",
        )
    if re.search(_WORKER_GONE, text):
        return UserError(
            "a data worker was ended from outside, most likely for want of memory",
            given=first,
            fix=f"fewer trainer.num_workers (0 makes the batches in the training process); {CONTINUES}",
        )
    if rank_count > 1 and re.search(_RANK_STUCK, text):
        return UserError(
            f"another process of the run has not answered for {timeout_seconds:g} seconds", given="trainer.timeout_seconds", fix=CONTINUES
        )
    if rank_count > 1 and re.search(_RANK_GONE, text):
        return UserError("another process of the run is gone", given=first, fix=CONTINUES)
    return None


@contextmanager
def watching(children: Callable[[], Sequence[Popen]], record: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """While the block runs: where one of this process's ranks dies, say so and end the run within a second or so, since the others would
    wait for it in the middle of an exchange; and on the other ranks, end with the process that started them.

    children: the other ranks that this process has started, [] as long as there are none. record: notes in the summary why the run ended.
    Yields what waits for the end that a dead rank brings, and returns at once where none is dead.
    """
    if not is_main_process():
        threading.Thread(target=end_with, args=(os.getppid(),), name="parent", daemon=True).start()
        yield lambda: None
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(WATCH_SECONDS):
            if dead := _dead(children()):
                message = f"{dead}: the run ends; {CONTINUES}"
                os.write(2, f"error: {message}\n".encode())
                record(message)
                for child in children():
                    child.kill()
                os._exit(1)

    def wait_for_the_end() -> None:
        until = time.monotonic() + ENDING_SECONDS  # connections of a process that dies break before it counts as dead
        while children() and time.monotonic() < until:
            if _dead(children()):
                time.sleep(60)
            time.sleep(WATCH_SECONDS / 2)

    thread = threading.Thread(target=watch, name="ranks", daemon=True)
    thread.start()
    try:
        yield wait_for_the_end
    finally:
        over.set()
        thread.join()


def _dead(children: Sequence[Popen]) -> str | None:
    """Of a rank that has ended otherwise than well."""
    for rank, child in enumerate(children, start=1):
        if code := child.poll():
            how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with code {code}"
            return f"process {child.pid}, rank {rank} of the run, {how}"
    return None
