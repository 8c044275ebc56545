"""W&B's own client, `wandb sweep` and `wandb agent`, with a shipped file against a server of our own (wandb_stub.py)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.sweeps.offline_run import read_exit_code, read_summary
from tests.sweeps.wandb_stub import ENTITY, PROJECT, SWEEP, Stub, serve

REPOSITORY = Path(__file__).resolve().parents[2]
SIZE = [
    *("data=text", "data.files=[text.txt]", "cache_dir=cache", "output_dir=runs", "tokenizer.vocab_size=300", "tokenizer.num_sentinels=0"),
    *("max_length=32", "batch_size=8", "model.hidden_size=32", "model.intermediate_size=64", "validation.sequences=16", "trainer=cpu"),
]
pytestmark = pytest.mark.slow


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serve() as server:
        yield server


def write_sweep(folder: Path, name: str, words: Sequence[str]) -> Path:
    """A shipped file with further words in its command: the same question in another size. And a text."""
    drawn = random.Random(0)
    words_of = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "e", "io", "un", "ar")]
    lines = [" ".join(drawn.choices(words_of, k=12)).capitalize() + "." for _ in range(600)]
    (folder / "text.txt").write_text("\n".join(line + ("\n" if number % 4 == 3 else "") for number, line in enumerate(lines)))
    sweep = yaml.safe_load((REPOSITORY / "sweeps" / f"{name}.yaml").read_text())
    sweep["command"][-1:] = [*SIZE, *words, "${args_no_hyphens}"]
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(sweep))
    return path


def wandb(stub: Stub, folder: Path, *words: str) -> str:
    """Run the client to its end, as a user would; what it said."""
    client = str(Path(sys.executable).parent / "wandb")
    done = subprocess.run([client, *words], env=environment_of(stub), cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def environment_of(stub: Stub) -> dict[str, str]:
    """The agent starts plain `python`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return own | stub.environment() | {"PATH": path, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}


def run_folders(folder: Path) -> dict[int, Path]:
    """seed -> run folder"""
    return {json.loads(path.read_text())["seeds"]["init"]: path.parent for path in folder.glob("runs/*/summary.json")}


def recordings(run_folder: Path) -> list[Path]:
    """The .wandb files of a run, oldest first."""
    return sorted(run_folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)


def test_a_sweep_is_created_and_an_agent_runs_its_points(stub: Stub, tmp_path: Path) -> None:
    said = wandb(stub, tmp_path, "sweep", str(write_sweep(tmp_path, "mask_ratio", ["budget.steps=20"])))
    assert "Creating sweep with ID" in said and "Malformed" not in said and "WARNING" not in said
    said = wandb(stub, tmp_path, "agent", f"{ENTITY}/{PROJECT}/{SWEEP}")
    assert [values["seed"] for values in stub.started.values()] == [10, 11], said
    for seed in (10, 11):
        folder = run_folders(tmp_path)[seed]
        summary = json.loads((folder / "summary.json").read_text())
        (recording,) = recordings(folder)
        assert summary["status"] == "finished" and summary["study"] == "mask_ratio"
        recorded, metric = read_summary(recording), stub.config["metric"]["name"]
        assert recorded[metric] == pytest.approx(summary["metrics"][metric])
        assert recorded["tokens"] == summary["tokens"] and recorded["flops"] == pytest.approx(summary["flops"]["total"])
        assert read_exit_code(recording) == 0

    stub.started, stub.limit = {}, 1  # another agent gets a point that is finished: the sweep learns its metric all the same
    wandb(stub, tmp_path, "agent", f"{ENTITY}/{PROJECT}/{SWEEP}")
    first, second = map(read_summary, recordings(run_folders(tmp_path)[10]))
    assert second[metric] == first[metric]


def test_a_stop_ends_a_run_with_a_checkpoint_and_an_agent_that_gets_the_point_again_resumes_it(stub: Stub, tmp_path: Path) -> None:
    words = ["budget.steps=2500", "validation.every_steps=2500", "checkpoint.every_steps=2500"]
    wandb(stub, tmp_path, "sweep", str(write_sweep(tmp_path, "mask_ratio", words)))
    stub.limit, stub.stop_when = 1, lambda: any(file.read_text().count("\n") > 1 for file in tmp_path.glob("runs/*/metrics.csv"))
    said = wandb(stub, tmp_path, "agent", f"{ENTITY}/{PROJECT}/{SWEEP}")
    folder = run_folders(tmp_path)[10]
    summary = json.loads((folder / "summary.json").read_text())
    assert stub.stopped and summary["status"] == "interrupted", said
    assert 0 < summary["steps"] < 2500 and len(list(folder.glob("checkpoints/step-*.ckpt"))) == 1
    assert read_exit_code(recordings(folder)[0]) == 143

    stub.started, stub.stop_when = {}, lambda: False
    said = wandb(stub, tmp_path, "agent", f"{ENTITY}/{PROJECT}/{SWEEP}")
    assert f"continuing at step {summary['steps']:,}" in said
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["steps"] == 2500 and list(run_folders(tmp_path)) == [10]
    recorded = read_summary(recordings(folder)[1])
    assert recorded[stub.config["metric"]["name"]] == pytest.approx(summary["metrics"][stub.config["metric"]["name"]])


def test_a_run_that_was_stopped_dies_by_the_signal(stub: Stub, tmp_path: Path) -> None:
    """Exit codes above 0 are failures to the agent, which gives up after three: early stopping would end the sweep."""
    write_sweep(tmp_path, "mask_ratio", [])
    words = ["+experiment=ablation", "logger=wandb", *SIZE, "budget.steps=100_000"]
    environment = environment_of(stub) | {"WANDB_SWEEP_ID": SWEEP, "WANDB_RUN_ID": "run00000"}
    process = subprocess.Popen([sys.executable, "-m", "mlm_lab", *words], env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
    while not any(tmp_path.glob("runs/*/metrics.csv")) and process.poll() is None:
        time.sleep(0.2)
    process.terminate()
    assert process.wait(300) == -signal.SIGTERM
