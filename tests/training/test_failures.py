"""What torch says when memory, a worker or a rank is lost, in our words; real errors where one process can make them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import Dataset

from mlm_lab.errors import UserError
from mlm_lab.training.data import step_loader
from mlm_lab.training.failures import explain, explained, watching

SIZES = "batch_size=8 max_length=128 trainer.micro_batch_size=null"


class Misbehaving(Dataset):
    """A batch that its worker never finishes, or that it dies of."""

    def __init__(self, how: str):
        self.how = how

    def __getitem__(self, step: int) -> int:
        if step == 1:
            time.sleep(60) if self.how == "stuck" else os.kill(os.getpid(), signal.SIGKILL)
        return step


def test_out_of_memory_names_the_keys() -> None:
    with pytest.raises(UserError, match=f"out of memory(.|\n)*{SIZES}(.|\n)*trainer.micro_batch_size=N") as told, explained(SIZES, 60):
        torch.empty(10**15)
    assert len(str(told.value).splitlines()) <= 5
    assert "out of memory" in str(explain(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), SIZES, 60))
    assert "out of memory" in str(explain(MemoryError(), SIZES, 60))


@pytest.mark.parametrize(("how", "said"), [("stuck", "has not answered for 1 seconds"), ("dead", "was ended from outside")])
def test_a_data_worker_that_is_stuck_or_dead(how, said) -> None:
    with pytest.raises(UserError, match=f"a data worker {said}(.|\n)*trainer.num_workers"), explained(SIZES, 1):
        list(step_loader(Misbehaving(how), 0, 3, 1, pin_memory=False, timeout_seconds=1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4567", "is gone"),
        ("[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 5000ms for recv operation", "5 seconds"),
        ("Timed out after 6 seconds waiting for clients. 1/2 clients joined.", "5 seconds"),
        ("NCCL error in: ProcessGroupNCCL.cpp:2251, remote process exited or there was a network error", "is gone"),
    ],
)
def test_a_rank_that_is_gone_or_stuck(text, said) -> None:
    assert said in str(explain(RuntimeError(text), SIZES, 5, rank_count=2))
    assert explain(RuntimeError(text), SIZES, 5, rank_count=1) is None


def test_what_is_not_known_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"), explained(SIZES, 5, rank_count=2):
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_a_rank_that_dies_ends_the_first_process_at_once() -> None:
    script = """
import subprocess, sys, time
from mlm_lab.training.failures import watching
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
with watching(lambda: [child], lambda why: print(why, flush=True)):
    child.kill()
    time.sleep(60)  # in an exchange that nobody answers
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "rank 1 of the run, was killed (SIGKILL)" in done.stderr
    assert done.stdout.startswith("process ") and "continues from the last checkpoint" in done.stdout


def test_ranks_that_end_well_end_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    with watching(lambda: [child], lambda why: pytest.fail(why)) as wait_for_the_end:
        child.wait()
        time.sleep(0.5)
        wait_for_the_end()


def test_a_rank_ends_with_the_process_that_started_it() -> None:
    rank = """
import os, time
from mlm_lab.training.failures import watching
with watching(list, print):
    print(os.getpid(), flush=True)
    time.sleep(60)
"""
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {rank!r}])"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, "LOCAL_RANK": "1"}) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
        deadline = time.monotonic() + 20
        while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
            time.sleep(0.1)
    assert not os.path.exists(f"/proc/{child}")
