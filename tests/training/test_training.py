"""A run as a whole: it learns, it writes down what happened, and it is the same run every time."""

from __future__ import annotations

import csv
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import lightning
import pytest
import torch
from safetensors.torch import load_file

from tests.training.tiny_run import make_config, make_course, train

TIMINGS = ("train/tokens_per_second", "train/flops_per_second", "train/ceiling_share", "spent/seconds")
DROPOUT = "model.hidden_dropout=0.1"


def rows_of(folder: Path) -> list[dict[str, float]]:
    """metrics.csv, without timings."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [{k: float(v) for k, v in row.items() if v and k not in TIMINGS} for row in csv.DictReader(file)]


def bits_of(module: torch.nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in module.state_dict().items()}


class SignalAt(lightning.Callback):
    """Sends this process a signal after so many steps of its life."""

    def __init__(self, step: int, number: int):
        self.step, self.number = step, number

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if module.step == self.step:
            os.kill(os.getpid(), self.number)


def test_a_short_run_learns_and_records(tmp_path):
    run = train(make_config("optim.peak_lr=1e-2", "trainer.log_every_steps=25", "validation.every_steps=50", steps=150), tmp_path)
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == [25, 50, 75, 100, 125, 150]
    assert rows[-1]["train/loss"] < rows[0]["train/loss"] - 1
    assert rows[-1]["probe/mlm_15_loss"] < run.recorder.watch.baseline["unigram_loss"] - 1
    assert run.recorder.plateau["left_plateau"] and run.recorder.plateau_left_step in range(30, 110, 10)
    assert rows[-1]["train/mask_share"] == pytest.approx(0.8, abs=0.08)
    assert rows[-1]["train/learning_rate"] < 1e-3 < rows[1]["train/learning_rate"]
    assert run.recorder.totals["corpus_tokens"] == pytest.approx(150 * run.module.course.tokens_per_step, rel=0.05)


def test_perplexity_is_the_exponential_of_the_summed_loss(tmp_path):
    """traps 25."""
    train(make_config("trainer.log_every_steps=4", steps=8), tmp_path)
    for row in rows_of(tmp_path):
        for part in ("train", "val"):
            if f"{part}/loss" in row:
                assert row[f"{part}/mlm_perplexity"] == pytest.approx(math.exp(row[f"{part}/loss"]), rel=1e-9)


def test_the_same_config_gives_the_same_bits(tmp_path):
    first, second = (train(make_config(DROPOUT), tmp_path / name) for name in "ab")
    assert bits_of(first.module.module) == bits_of(second.module.module)
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")
    other = train(make_config(DROPOUT, "seeds.init=1"), tmp_path / "c")
    assert bits_of(other.module.module) != bits_of(first.module.module)


@pytest.mark.parametrize(("stop_at", "number"), [(0, signal.SIGTERM), (3, signal.SIGINT), (6, signal.SIGTERM)])
def test_a_stopped_run_continues_bit_for_bit(tmp_path, stop_at, number):
    """traps 29: batch, masks, dropout and loss of each step after the resume, log rows that began before it, counts."""
    config = make_config(DROPOUT, "trainer.log_every_steps=3", "checkpoint.every_steps=5", steps=10)
    whole = train(config, tmp_path / "whole")
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stopped = train(config, tmp_path / "parts", SignalAt(stop_at, number))
    assert stopped.module.step == stop_at + 1, "the step in which the signal came is finished, and no other"
    assert stopped.checkpoints.stop_request.signal_number == number
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    resumed = train(config, tmp_path / "parts")
    assert bits_of(resumed.module.module) == bits_of(whole.module.module)
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
    assert resumed.recorder.totals == whole.recorder.totals


def test_rows_after_the_checkpoint_are_cut_back(tmp_path):
    """A process that was killed outright: its last rows are younger than its last checkpoint."""
    config = make_config("trainer.log_every_steps=1", "checkpoint.every_steps=3", steps=7)

    class Killed(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if module.step == 5:
                raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(config, tmp_path / "parts", Killed())
    assert len(rows_of(tmp_path / "parts")) == 5
    train(config, tmp_path / "parts")
    train(config, tmp_path / "whole")
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
    assert [row["step"] for row in rows_of(tmp_path / "parts")] == [1, 2, 3, 4, 5, 6, 7]


def test_a_finished_run_that_is_started_again_changes_nothing(tmp_path):
    config = make_config()
    whole = train(config, tmp_path)
    rows = rows_of(tmp_path)
    again = train(config, tmp_path)
    assert again.module.step == 8
    assert bits_of(again.module.module) == bits_of(whole.module.module)
    assert rows_of(tmp_path) == rows


def test_micro_batches_do_not_change_the_run(tmp_path):
    """traps 23: accumulate 1 against 4, rows with different numbers of targets."""
    counts = "objective.mask_count=bernoulli"
    whole = train(make_config(counts, "trainer.log_every_steps=1"), tmp_path / "one")
    parts = train(make_config(counts, "trainer.log_every_steps=1", "trainer.micro_batch_size=2"), tmp_path / "four")
    for one, four in zip(rows_of(tmp_path / "one"), rows_of(tmp_path / "four"), strict=True):
        assert four == pytest.approx(one, rel=1e-5, abs=1e-6)
    assert whole.recorder.totals == parts.recorder.totals


def test_schedules_take_their_horizon_from_the_budget(tmp_path):
    """traps 35."""
    for steps in (5, 10):
        run = train(make_config("schedule.warmup_steps=0", "trainer.log_every_steps=1", steps=steps), tmp_path / str(steps))
        rates = [row["train/learning_rate"] for row in rows_of(tmp_path / str(steps))]
        assert rates == pytest.approx([run.module.optim.peak_lr * (1 - step / steps) for step in range(steps)])


def test_a_diverged_run_is_an_error(tmp_path):
    from mlm_lab.errors import UserError

    with pytest.raises(UserError, match="not finite"):
        train(make_config("optim.peak_lr=1e30", "optim.gradient_clip=null", "trainer.log_every_steps=1", steps=30), tmp_path)


def test_a_budget_in_tokens_is_spent_within_a_step(tmp_path):
    course = make_course(make_config())
    run = train(make_config("budget.tokens=1500"), tmp_path)
    assert abs(run.recorder.totals["corpus_tokens"] - 1500) < 1.2 * course.tokens_per_step


def launch(*words: str, **environment: str) -> subprocess.Popen:
    """A real process of the tiny run, alone on one thread."""
    repository = Path(__file__).resolve().parents[2]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(repository), **environment}
    command = [sys.executable, "-m", "tests.training.tiny_run", *words]
    return subprocess.Popen(command, cwd=repository, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    """traps 23 with real gloo processes, micro-batches, and shares of the step with different numbers of targets."""
    words = ["objective.mask_count=bernoulli", "trainer.log_every_steps=1"]
    finish(launch(str(tmp_path / "one"), *words))
    finish(launch(str(tmp_path / "two"), *words, "trainer.strategy=ddp", "trainer.devices=2", "trainer.micro_batch_size=3"))
    one, two = rows_of(tmp_path / "one"), rows_of(tmp_path / "two")
    assert len(one) == len(two) == 8
    for single, double in zip(one, two, strict=True):
        assert double == pytest.approx(single, rel=1e-5, abs=1e-6)
    weights = [load_file(tmp_path / name / "weights.safetensors") for name in ("one", "two")]
    for name in weights[0]:
        assert torch.allclose(weights[0][name], weights[1][name], atol=2e-5), name


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "steps", "stops"), [(1, 400, (3, 12, 20)), (2, 120, (2, 6, 6))])
def test_processes_stopped_at_three_places_end_in_the_same_weights(tmp_path, ranks, steps, stops):
    """traps 29 with real processes and SIGTERM to the first one alone."""
    words = [DROPOUT, f"budget.steps={steps}", "trainer.log_every_steps=5", "checkpoint.every_steps=50"]
    words += ["trainer.strategy=ddp", "trainer.devices=2"] if ranks == 2 else []
    finish(launch(str(tmp_path / "whole"), *words))
    stopped, metrics = 0, tmp_path / "parts" / "metrics.csv"
    for more_rows in stops:
        known = len(rows_of(metrics.parent)) if metrics.exists() else 0
        process = launch(str(tmp_path / "parts"), *words)
        until = time.monotonic() + 400
        while (
            process.poll() is None
            and time.monotonic() < until
            and not (metrics.exists() and len(rows_of(metrics.parent)) >= known + more_rows)
        ):
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        stopped += "stopping: this step is finished" in finish(process)
    assert stopped == 3, "too fast: a run ended before it was stopped"
    finish(launch(str(tmp_path / "parts"), *words))
    assert (tmp_path / "parts" / "weights.safetensors").read_bytes() == (tmp_path / "whole" / "weights.safetensors").read_bytes()
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
