"""Several processes through the door: one folder, one record, one voice; and the end of all where one of them is gone or stuck."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.survival.small_run import outcome, words, write_inputs

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).resolve().parents[2]
TWO = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "trainer.precision=32-true", "trainer.log_every_steps=1"]
_begun: list[subprocess.Popen] = []
PATIENCE = 400
"""Seconds for a machine that does other things too."""
STATED_SECONDS = 30
"""In which a run ends after one of its processes has died."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A working directory with the inputs, the cache, and the run of one process."""
    place = tmp_path_factory.mktemp("one")
    write_inputs(place)
    said, code = finish(begin(place, *words(Path("."))))
    assert code == 0, said
    return place


@pytest.fixture
def place(prepared, tmp_path) -> Path:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs"))
    return tmp_path


def begin(place: Path, *given: str, launcher: tuple[str, ...] = (), **environment: str) -> subprocess.Popen:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY), **environment}
    command = [sys.executable, *(launcher or ("-m",)), "mlm_lab", *given]
    process = subprocess.Popen(command, cwd=place, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    _begun.append(process)
    return process


@pytest.fixture(autouse=True)
def nothing_left():
    """What a test that fails has begun does not go on."""
    yield
    while _begun:
        _begun.pop().kill()


def finish(process: subprocess.Popen, seconds: float = PATIENCE) -> tuple[str, int]:
    said, _ = process.communicate(timeout=seconds)
    return said, process.returncode


def long(*more: str) -> list[str]:
    """The words of a run of two processes that takes its time."""
    return [*words(Path("."), steps=6000), *TWO, "validation.every_steps=6000", "checkpoint.every_steps=20", *more]


def wait_for_steps(place: Path, process: subprocess.Popen) -> int:
    """Until there is a new checkpoint. Returns the process id of rank 1."""
    until, earlier = time.monotonic() + PATIENCE, set(place.glob("runs/*/checkpoints/*.ckpt"))
    while set(place.glob("runs/*/checkpoints/*.ckpt")) <= earlier:
        assert process.poll() is None and time.monotonic() < until, process.communicate()[0]
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return next(int(child) for child in children if b"mlm_lab" in Path(f"/proc/{child}/cmdline").read_bytes())


def ends(process: int) -> bool:
    """Whether it is gone within STATED_SECONDS."""
    until = time.monotonic() + STATED_SECONDS
    while Path(f"/proc/{process}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    return not Path(f"/proc/{process}").exists()


def numbers(place: Path) -> dict:
    return {name: value for name, value in outcome(place)["summary.json"].items() if name in ("steps", "tokens", "supervised_positions")}


def test_two_processes_are_one_run(place, prepared):
    said, code = finish(begin(place, *words(Path(".")), *TWO, "logger=wandb", WANDB_MODE="offline"))
    assert code == 0, said
    assert [path.name for path in place.glob("runs/*-*")] == [] and len(list(place.glob("runs/*/summary.json"))) == 1
    assert len(list(place.glob("runs/*/wandb/offline-run-*"))) == 1
    for line in ("== Prepare ==", "== Pretraining ==", "== Evaluation ==", "run folder: "):
        assert said.count(line) == 1, said
    assert numbers(place) == numbers(prepared), "the same id, examples and targets as with one process"
    assert [path.name for path in place.glob("runs/*")] == [path.name for path in prepared.glob("runs/*")]


def test_torchrun_starts_it_too(place, prepared):
    """All processes start at once: the first claims and prepares, the others wait."""
    shutil.rmtree(place / "cache")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m")
    said, code = finish(begin(place, *words(Path(".")), *TWO, launcher=launcher))
    assert code == 0, said
    assert said.count("== Prepare ==") == 1 and "another process makes" not in said and numbers(place) == numbers(prepared)


def test_slurm_starts_it_too(place, prepared):
    """Lightning reads the environment of srun; here its two tasks are started by hand."""
    common = {
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NAME": "job",
        "SLURM_NODELIST": "localhost",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29871",
        "SLURM_STEP_NODELIST": "localhost",
    }
    tasks = [begin(place, *words(Path(".")), *TWO, **common, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank)) for rank in range(2)]
    ends = [finish(task) for task in tasks]
    assert [code for _, code in ends] == [0, 0], ends
    assert ends[1][0] == "" and numbers(place) == numbers(prepared)


def test_a_rank_that_is_killed_ends_the_run_and_the_same_command_goes_on(place):
    process = begin(place, *long())
    rank = wait_for_steps(place, process)
    os.kill(rank, signal.SIGKILL)
    said, code = finish(process, STATED_SECONDS)
    assert code == 1 and "rank 1 of the run, was killed (SIGKILL): the run ends" in said, said
    summary = outcome(place)["summary.json"]
    assert summary["status"] == "failed"
    process = begin(place, *long())
    wait_for_steps(place, process)
    process.send_signal(signal.SIGTERM)
    said, code = finish(process)
    assert code == 143 and "continuing at step" in said, said


def test_the_others_end_with_the_first_process(place):
    process = begin(place, *long())
    rank = wait_for_steps(place, process)
    process.kill()
    process.wait()
    assert ends(rank)
    process.stdout.close()


def test_a_rank_that_is_stuck_ends_the_run_within_its_time(place):
    process = begin(place, *long("trainer.timeout_seconds=60"))
    rank = wait_for_steps(place, process)
    os.kill(rank, signal.SIGSTOP)
    said, code = finish(process, 60 + STATED_SECONDS)
    assert code == 2 and "another process of the run has not answered for 60 seconds" in said, said
    assert ends(rank)


def test_a_mistake_is_told_once(place):
    said, code = finish(begin(place, *words(Path(".")), *TWO, "batch_size=1"))
    assert code == 2 and said.count("error:") == 1 and "a step has fewer sequences than there are ranks" in said, said
    assert "Traceback" not in said


def test_slurm_puts_a_run_that_is_cut_off_back_into_the_queue(place):
    """On SIGUSR1 (sbatch --signal=SIGUSR1@90) Lightning calls scontrol requeue; the job that starts again continues."""
    tools = place / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {place}/requeued\n')
    (tools / "scontrol").chmod(0o755)
    job = {
        "SLURM_NTASKS": "1",
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": "job",
        "SLURM_NODELIST": "localhost",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
    }
    given = [*words(Path("."), steps=1000), "validation.every_steps=1000", "checkpoint.every_steps=1000"]
    process = begin(place, *given, **job)
    until = time.monotonic() + PATIENCE
    while not any(file.read_text().count("\n") > 1 for file in place.glob("runs/*/metrics.csv")):  # a row under its header: steps are done
        assert process.poll() is None and time.monotonic() < until, process.communicate()[0]
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    said, code = finish(process)
    assert code == 143 and (place / "requeued").read_text() == "requeue 4711\n", said
    summary = outcome(place)["summary.json"]
    assert summary["status"] == "interrupted" and 0 < summary["steps"] < 1000
    said, code = finish(begin(place, *given, **job))
    assert code == 0 and f"continuing at step {summary['steps']:,} of 1,000" in said, said


def test_submitit_starts_the_points_of_a_sweep_as_jobs(place, prepared):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    given = [*words(Path("."), steps=6), "evaluation.tasks=[]", "seed=0,1", "hydra/launcher=submitit_local"]
    kept = [word for word in given if not word.startswith(("evaluation.files", "task."))]
    said, code = finish(begin(place, "-m", *kept))
    assert code == 0, said
    assert len(list(place.glob("runs/*/weights.safetensors"))) == 2
