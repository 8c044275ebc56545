"""Worker processes: forked from what the main process has in memory, silent, and gone when it is gone.

main process ── item ──> worker: work(item)      one at a time each
             <── what it came to ──
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

from mlm_lab.errors import UserError

Item, Result = TypeVar("Item"), TypeVar("Result")


class Workers(Generic[Item, Result]):
    """So many forked processes that call `work`. Leaving the block ends them, whatever they are doing.

    They see what the main process had in memory when the block was entered, and print nothing.
    """

    def __init__(self, count: int, work: Callable[[Item], Result]):
        self._count, self._work = count, work
        self._processes: dict[Connection, multiprocessing.Process] = {}
        self._busy: dict[Connection, Item] = {}

    def __enter__(self) -> Workers[Item, Result]:
        context = multiprocessing.get_context("fork")
        for _ in range(self._count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, self._work, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            self._processes[ours] = process
        return self

    def __exit__(self, *_: object) -> None:
        for connection, process in self._processes.items():
            process.kill()
            process.join()
            connection.close()

    @property
    def has_room(self) -> bool:
        """Whether a worker waits for something to do."""
        return len(self._busy) < len(self._processes)

    def submit(self, item: Item) -> None:
        """Give it to a worker that waits."""
        connection = next(connection for connection in self._processes if connection not in self._busy)
        connection.send(item)
        self._busy[connection] = item

    def next(self) -> tuple[Item, Result]:
        """Wait for the next item that is done.

        Raises what `work` raised; UserError where a worker was ended from outside.
        """
        connection = wait(list(self._busy))[0]
        item = self._busy.pop(connection)
        try:
            result, error = connection.recv()
        except EOFError:
            raise UserError(
                "a worker process was ended from outside, most likely for want of memory",
                given=str(item),
                fix="fewer of them side by side: evaluation.jobs=1",
            ) from None
        if error is not None:
            raise error
        return item, result


def _serve(connection: Connection, work: Callable, parent: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # that library's threads do not survive the fork: a worker would wait for them
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.stdout = sys.stderr = io.StringIO()  # the terminal is the main process's
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        try:
            answer = (work(item), None)
        except UserError as error:
            answer = (None, error)
        except BaseException:
            answer = (None, RuntimeError(f"in a worker process, at {item}:\n{traceback.format_exc()}"))
        connection.send(answer)


def end_with(parent: int) -> None:
    """End this process when its parent is gone: it would wait for ever, and hold its locks, which forked processes share."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
