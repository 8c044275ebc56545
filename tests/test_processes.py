"""Worker processes: what they compute arrives, what goes wrong in them is told, and they end with the main process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from mlm_lab.errors import UserError
from mlm_lab.processes import Workers


def collect(workers: Workers, items: list) -> dict:
    left, found = list(items), {}
    while left or len(found) < len(items):
        while left and workers.has_room:
            workers.submit(left.pop(0))
        item, result = workers.next()
        found[item] = result
    return found


def test_items_are_shared_out_and_results_come_back() -> None:
    with Workers(3, lambda item: (item * item, os.getpid())) as workers:
        found = collect(workers, list(range(20)))
    assert {item: square for item, (square, _) in found.items()} == {item: item * item for item in range(20)}
    assert os.getpid() not in {process for _, process in found.values()}


def test_they_are_silent(capfd) -> None:
    with Workers(1, lambda item: print("loud", file=sys.stderr) or print("louder")) as workers:
        collect(workers, [1])
    assert capfd.readouterr() == ("", "")


def test_a_mistake_of_the_user_s_stays_one_and_another_says_where() -> None:
    def work(item: int) -> None:
        raise UserError("the file is not UTF-8", where="x, line 3") if item == 1 else KeyError("lost")

    with Workers(1, work) as workers:
        workers.submit(1)
        with pytest.raises(UserError, match="line 3"):
            workers.next()
        workers.submit(2)
        with pytest.raises(RuntimeError, match=r"at 2:(.|\n)*KeyError: 'lost'"):
            workers.next()


def test_a_worker_that_was_killed_is_told() -> None:
    with Workers(1, lambda item: os.kill(os.getpid(), signal.SIGKILL)) as workers:
        workers.submit("cola")
        with pytest.raises(UserError, match=r"ended from outside(.|\n)*cola(.|\n)*evaluation\.jobs=1"):
            workers.next()


def test_leaving_the_block_ends_them_at_once() -> None:
    started = time.monotonic()
    with Workers(2, lambda item: time.sleep(60)) as workers:
        workers.submit(1)
        processes = list(workers._processes.values())
    assert time.monotonic() - started < 20
    assert not any(process.is_alive() for process in processes)


def test_they_end_with_a_main_process_that_is_killed() -> None:
    script = (
        "import os, time\n"
        "from mlm_lab.processes import Workers\n"
        "with Workers(1, lambda item: os.write(1, f'{os.getpid()}\\n'.encode()) and time.sleep(60)) as workers:\n"
        "    workers.submit(1); workers.next()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as main:
        worker = int(main.stdout.readline())
        main.kill()
        deadline = time.monotonic() + 30
        while os.path.exists(f"/proc/{worker}") and time.monotonic() < deadline:
            time.sleep(0.1)
    assert not os.path.exists(f"/proc/{worker}")
