"""What goes wrong around a run: a disk that fills, a damaged checkpoint, no memory, a stuck worker, a second start, W&B."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.survival.killed import command, end, start
from tests.survival.small_run import outcome, words, write_inputs

pytestmark = pytest.mark.slow
KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory) -> Path:
    """The working directory of a run that nothing disturbed."""
    place = tmp_path_factory.mktemp("whole")
    ended = command(place, words(inputs))
    assert ended.code == 0, ended.said
    return place


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """A file system of so many bytes."""
    place.mkdir(parents=True, exist_ok=True)
    mounted = shutil.which("mount") and subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True)
    if not mounted or mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def run_folder(place: Path) -> Path:
    (summary,) = place.glob("runs/*/summary.json")
    return summary.parent


def test_a_disk_that_fills_up_is_told_and_harms_nothing_that_was_there(inputs, whole, tmp_path):
    shutil.copytree(whole / "cache", tmp_path / "cache")
    with small_disk(tmp_path / "runs", "900k"):
        full = command(tmp_path, words(inputs))
        assert full.code == 2 and "Traceback" not in full.said, full.said
        assert "disk is full" in full.said or "No space left" in full.said
        kept = sorted(path.name for path in run_folder(tmp_path).glob("checkpoints/*"))
        assert kept and all(name.endswith(".ckpt") for name in kept), "what was half written is gone"
        again = command(tmp_path, words(inputs))
        assert again.code == 2 and "continuing at step" in again.said and "is damaged" not in again.said
        subprocess.run(["mount", "-o", "remount,size=100m", tmp_path / "runs"], check=True)
        finished = command(tmp_path, words(inputs))
        assert finished.code == 0, finished.said
        assert outcome(tmp_path) == outcome(whole)


def test_a_disk_that_is_full_when_the_store_is_built(inputs, tmp_path):
    with small_disk(tmp_path / "cache", "60k"):
        full = command(tmp_path, words(inputs))
        assert full.code == 2 and "the disk is full" in full.said and "cache_dir=FOLDER" in full.said
        assert not list((tmp_path / "cache").rglob("*.unfinished")) and not (tmp_path / "runs").exists()


@pytest.mark.parametrize("damage", ["cut short", "a flipped bit", "both"])
def test_a_damaged_checkpoint_costs_steps_and_not_the_run(inputs, whole, tmp_path, damage):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    folder = run_folder(tmp_path)
    (folder / "weights.safetensors").unlink()
    for number, path in enumerate(sorted((folder / "checkpoints").iterdir(), reverse=True)[: 2 if damage == "both" else 1]):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1 << number
        path.write_bytes(content[: 1000 if damage == "cut short" else None])
    ended = command(tmp_path, words(inputs))
    assert ended.code == 0, ended.said
    assert "step-00000060 is damaged" in ended.said
    if damage == "both":
        assert "the run starts from its beginning" in ended.said
    else:
        assert "using the one before it" in ended.said and "continuing at step 50 of 60" in ended.said
    assert outcome(tmp_path) == outcome(whole)


def test_the_second_of_two_starts_says_who_has_the_run(inputs, whole, tmp_path):
    shutil.copytree(whole / "cache", tmp_path / "cache")
    first = start(tmp_path, words(inputs), said="first.txt")
    while not list(tmp_path.glob("runs/*/.claim-*")):
        first.join(0.05)
    second = command(tmp_path, words(inputs), said="second.txt")
    ended = end(first, tmp_path, "first.txt")
    assert ended.code == 0, ended.said
    assert second.code == 75 and f"process {first.pid} on " in second.said and len(second.said.splitlines()) <= 10
    assert outcome(tmp_path) == outcome(whole)


def out_of_memory(self, batch, batch_idx):
    import torch

    torch.empty(10**15)


def stuck(self, step):
    import time

    time.sleep(100)


def test_out_of_memory_is_told_with_the_keys_to_change(inputs, whole, tmp_path):
    shutil.copytree(whole / "cache", tmp_path / "cache")
    ended = command(tmp_path, words(inputs), patches={"mlm_lab.training.module:Pretraining.training_step": out_of_memory})
    assert ended.code == 2 and "error: out of memory" in ended.said and "Traceback" not in ended.said, ended.said
    assert "batch_size=4 max_length=32 trainer.micro_batch_size=null" in ended.said


def test_a_stuck_data_worker_ends_the_run_within_its_time(inputs, whole, tmp_path):
    shutil.copytree(whole / "cache", tmp_path / "cache")
    more = [*words(inputs), "trainer.num_workers=1"]
    ended = command(tmp_path, [*more, "trainer.timeout_seconds=3"], patches={"mlm_lab.training.data:StepDataset.__getitem__": stuck})
    assert ended.code == 2 and "a data worker has not answered for 3 seconds" in ended.said, ended.said
    done = command(tmp_path, more)
    assert done.code == 0 and outcome(tmp_path) == outcome(whole)


class Refusing(BaseHTTPRequestHandler):
    """A server that takes nobody's key."""

    def do_POST(self) -> None:
        self.send_response(401)
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server(how: str) -> Iterator[str]:
    """The address of W&B's server, as bad as that."""
    if how == "refusing":
        with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as http:
            threading.Thread(target=http.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{http.server_address[1]}"
            http.shutdown()
        return
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if how == "silent":
            listening.listen(50)  # connections are taken, and nothing is ever said
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("how", ["unreachable", "silent", "refusing"])
def test_wandb_neither_holds_up_a_run_nor_fails_it(inputs, whole, tmp_path, how):
    shutil.copytree(whole / "cache", tmp_path / "cache")
    patience = {f"mlm_lab.training.wandb_run:{name}_SECONDS": 5.0 for name in ("LOOK", "INIT", "FINISH")}
    with server(how) as address:
        environment = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": address, "WANDB_MODE": "online"}
        ended = command(tmp_path, [*words(inputs), "logger=wandb"], patches=patience, environment=environment)
    assert ended.code == 0, ended.said
    assert outcome(tmp_path) == outcome(whole)
    (line,) = {line for line in ended.said.splitlines() if "wandb sync " in line and line.startswith("W&B")}
    folder = Path(tmp_path, line.partition("wandb sync ")[2])
    assert list(folder.glob("*.wandb")) and KEY not in ended.said
    held = [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert held == [], "the key is on no record"


def test_no_secret_of_the_environment_is_on_record(inputs, whole, tmp_path):
    shutil.copytree(whole / "cache", tmp_path / "cache")
    secrets = {name: f"planted-{number}-{KEY}" for number, name in enumerate(("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD"))}
    environment = {**secrets, "WANDB_API_KEY": KEY, "WANDB_MODE": "offline"}
    ended = command(tmp_path, [*words(inputs), "logger=wandb"], environment=environment)
    assert ended.code == 0, ended.said
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    summary = json.loads((run_folder(tmp_path) / "summary.json").read_text())
    assert summary["status"] == "finished" and list(run_folder(tmp_path).glob("wandb/offline-run-*/*.wandb"))
