"""What Lightning, logging and bookkeeping cost: the training stage against a bare loop over the same module, data and optimiser.

mini (4 layers, 256 wide), vocabulary 8192, 128 tokens, bf16, one thread; A B A B in one process; the quickest CPU time of a step, and the
sum over a whole row of metrics.csv, since other work on the machine only ever adds to it. By hand:

    taskset -c 0 python -m tests.benchmarks.pretraining_overhead
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import lightning
import numpy as np
import torch

from mlm_lab.config import RunConfig, compose
from mlm_lab.data.token_store import TokenStore
from mlm_lab.training.callbacks import Checkpoints, Recorder
from mlm_lab.training.course import Course
from mlm_lab.training.module import Pretraining
from mlm_lab.training.validation import HeldOut, unigram_baseline
from mlm_lab.types import Vocabulary

STEPS, ROW, ROUNDS = 21, 5, 3
WORDS = ["model=mini", "trainer=cpu", "trainer.precision=bf16-mixed", "batch_size=32", f"budget.steps={STEPS}", "stages=[pretrain]"]
WORDS += [f"trainer.log_every_steps={ROW}", "validation.sequences=32", "validation.every_steps=1000", "checkpoint.every_steps=1000"]


def make_store(split: str) -> TokenStore:
    """Random tokens in sentences of 20 and documents of 1000."""
    specials = (0, 1, 2, 3, 4)
    vocabulary = Vocabulary(8192, 8192, 0, 1, 2, 3, 4, specials, (), "benchmark")
    tokens = np.random.default_rng(0).integers(5, 8192, 100_000)
    starts = np.ones(len(tokens), dtype=bool)
    return TokenStore.from_arrays(tokens, starts, np.arange(0, 100_001, 20), np.arange(0, 5001, 50), vocabulary, split)


def bare_loop(config: RunConfig, course: Course) -> list[float]:
    """CPU seconds at the start of each step, of the least code that trains the same way."""
    module, data = course.module.train(), course.dataset(STEPS)
    optimizer, factor = config.optim.build(module), config.schedule.build(STEPS)
    marks = []
    for step in range(STEPS):
        marks.append(time.process_time())
        batch = {name: torch.from_numpy(array) for name, array in data[step][0].items()}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = module(batch).losses["mlm"] / module.target_counts(batch)["mlm"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), config.optim.gradient_clip)
        for group in optimizer.param_groups:
            group["lr"] = config.optim.peak_lr * factor(step)
        optimizer.step()
        optimizer.zero_grad()
    return marks


class Stopwatch(lightning.Callback):
    """CPU seconds at the start of each step."""

    def __init__(self):
        self.marks = []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.marks.append(time.process_time())


def training_stage(config: RunConfig, course: Course, folder: Path) -> list[float]:
    """CPU seconds at the start of each step of the training stage."""
    held_out = HeldOut(config.objective, course.validation, config.max_length, config.validation.sequences, config.batch_size)
    recorder = Recorder(folder / "metrics.csv", held_out, unigram_baseline(course.train, held_out.labels(held_out.probe)))
    watch = Stopwatch()
    callbacks = [recorder, Checkpoints(folder / "checkpoints", recorder), watch]
    config.trainer.build(folder=folder, loggers=[], callbacks=callbacks).fit(Pretraining(course))
    return watch.marks


def main() -> None:
    torch.set_num_threads(1)
    config = compose(WORDS)
    stores = make_store("train"), make_store("validation")
    bare, stage = [], []
    for _ in range(ROUNDS):
        bare.append(bare_loop(config, Course(config, *stores)))
        with tempfile.TemporaryDirectory() as folder:
            stage.append(training_stage(config, Course(config, *stores), Path(folder)))
    tokens = config.batch_size * config.max_length
    for name, span in (("step", 1), ("row of five steps", ROW)):
        a, b = (min(np.min(np.array(m)[1:][span:] - np.array(m)[1:][:-span]) for m in rounds) / span for rounds in (bare, stage))
        print(f"{name}: bare {tokens / a:,.0f} tokens/s, stage {tokens / b:,.0f} tokens/s: {100 * (1 - a / b):.1f} % lost")


if __name__ == "__main__":
    main()
