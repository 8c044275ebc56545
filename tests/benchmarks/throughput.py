"""Training speed of the same shape in one process, in turn: a bare loop, the pretraining stage, Transformers' Trainer at its best and as it
comes. By hand, on one core (Transformers' side needs `pip install accelerate`):

    taskset -c 0 python -m tests.benchmarks.throughput [--model mini] [--length 128] [--rounds 5]

Vocabulary 8192, full rows, 15 % 80/10/10, one thread. The Trainer's best is bf16 with dropout 0, as ours; as it comes it is float32 with
dropout 0.1. What is compared is CPU time of a step, the median over the steps of all rounds, so that other work on the machine weighs as
little as it can; the wall time is printed beside it. The bare loop is the least code that trains the same module on the same batches.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import numpy as np
import torch

from mlm_lab.config import RunConfig, compose
from mlm_lab.data.token_store import TokenStore
from mlm_lab.training.callbacks import Checkpoints, Recorder
from mlm_lab.training.course import Course
from mlm_lab.training.module import Pretraining
from mlm_lab.training.plateau import PlateauWatch
from mlm_lab.training.validation import HeldOut
from mlm_lab.types import Vocabulary

VOCABULARY, STEPS, WARM_UP = 8192, 15, 3
FIXED = ["trainer=cpu", "trainer.precision=bf16-mixed", "optim.weight_decay=0.01", "validation.sequences=32", "stages=[pretrain]"]
SELDOM = ["validation.every_steps=1000", "checkpoint.every_steps=1000", f"budget.steps={STEPS}"]


class Mark(NamedTuple):
    """When a step began."""

    cpu: float
    wall: float


def mark() -> Mark:
    return Mark(time.process_time(), time.perf_counter())


def make_store(split: str) -> TokenStore:
    """Random tokens in sentences of 21 and documents of 1050, so that rows of 128 and 512 are nearly full."""
    specials = (0, 1, 2, 3, 4)
    vocabulary = Vocabulary(VOCABULARY, VOCABULARY, 0, 1, 2, 3, 4, specials, (), "benchmark")
    tokens = np.random.default_rng(0).integers(5, VOCABULARY, 105_000)
    starts = np.ones(len(tokens), dtype=bool)
    return TokenStore.from_arrays(tokens, starts, np.arange(0, 105_001, 21), np.arange(0, 5001, 50), vocabulary, split)


def bare_loop(config: RunConfig, stores: tuple[TokenStore, TokenStore]) -> list[Mark]:
    course = Course(config, *stores)
    module, data = course.module.train(), course.dataset(STEPS)
    optimizer, factor = config.optim.build(module), config.schedule.build(STEPS)
    marks = []
    for step in range(STEPS):
        marks.append(mark())
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
    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def on_train_batch_start(self, *_: Any) -> None:
        self.marks.append(mark())


def training_stage(config: RunConfig, stores: tuple[TokenStore, TokenStore]) -> list[Mark]:
    """What `python -m mlm_lab` runs, its log rows, bookkeeping and progress included."""
    course, watch = Course(config, *stores), Stopwatch()
    held_out = HeldOut(config.objective, course.validation, config.max_length, config.validation.sequences, config.batch_size)
    with tempfile.TemporaryDirectory() as name:
        recorder = Recorder(Path(name) / "metrics.csv", held_out, PlateauWatch.over(held_out, course.train))
        callbacks = [recorder, Checkpoints(Path(name) / "checkpoints", recorder), watch]
        config.trainer.build(folder=Path(name), loggers=[], callbacks=callbacks).fit(Pretraining(course))
    return watch.marks


def transformers_trainer(config: RunConfig, stores: tuple[TokenStore, TokenStore], *, best: bool) -> list[Mark]:
    """BertForMaskedLM of the same size under the Trainer and its collator, on rows of the same text that are full to the last place."""
    import transformers
    from tokenizers import Tokenizer, models

    transformers.logging.set_verbosity_error()
    marks: list[Mark] = []

    class Watch(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            marks.append(mark())

    words = {name: number for number, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])}
    words |= {f"w{number}": number for number in range(len(words), VOCABULARY)}
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordPiece(words, unk_token="[UNK]")), **names)
    inner = config.max_length - 2
    usable = np.asarray(stores[0].tokens[: len(stores[0].tokens) // inner * inner]).reshape(-1, inner).tolist()
    model, dropout = config.model, 0.0 if best else 0.1
    shape = {"hidden_size": model.hidden_size, "num_hidden_layers": model.num_layers, "num_attention_heads": model.num_heads}
    shape |= {"intermediate_size": model.intermediate_size, "vocab_size": VOCABULARY, "max_position_embeddings": config.max_length}
    bert = transformers.BertConfig(**shape, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=config.batch_size,
            max_steps=STEPS,
            bf16=best,
            use_cpu=True,
            learning_rate=config.optim.peak_lr,
            weight_decay=config.optim.weight_decay,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(
            model=transformers.BertForMaskedLM(bert),
            args=arguments,
            train_dataset=[{"input_ids": [2, *row, 3]} for row in usable],
            data_collator=transformers.DataCollatorForLanguageModeling(tokenizer),
            callbacks=[Watch()],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return marks


def ceiling(dtype: torch.dtype) -> float:
    """GFLOP/s of a product of two square matrices, the best of ten."""
    a = torch.randn(1024, 1024).to(dtype)
    times = []
    for _ in range(10):
        start = time.process_time()
        a @ a
        times.append(time.process_time() - start)
    return 2 * 1024**3 / min(times) / 1e9


def steps_of(rounds: list[list[Mark]]) -> Iterator[Mark]:
    """Seconds of each step after the warm-up."""
    for marks in rounds:
        for before, after in zip(marks[WARM_UP:-1], marks[WARM_UP + 1 :], strict=True):
            yield Mark(after.cpu - before.cpu, after.wall - before.wall)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    config = compose([*FIXED, *SELDOM, f"model={options.model}", f"max_length={options.length}", f"batch_size={options.batch}"])
    stores = make_store("train"), make_store("validation")
    contenders: dict[str, Callable[[], list[Mark]]] = {
        "bare loop": lambda: bare_loop(config, stores),
        "mlm_lab": lambda: training_stage(config, stores),
        "Trainer, bf16, dropout 0": lambda: transformers_trainer(config, stores, best=True),
        "Trainer, its defaults": lambda: transformers_trainer(config, stores, best=False),
    }
    rounds: dict[str, list[list[Mark]]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, run in contenders.items():
            rounds[name].append(run())
    tokens = options.batch * options.length
    speed = {}
    for name, runs in rounds.items():
        steps = list(steps_of(runs))
        speed[name] = tokens / statistics.median(step.cpu for step in steps)
        wall = tokens / statistics.median(step.wall for step in steps)
        print(f"{name:26} {speed[name]:8,.0f} tokens/s of CPU time   {wall:8,.0f} of wall time")
    ours = speed["mlm_lab"]
    print(f"lost to Lightning and logging: {100 * (1 - ours / speed['bare loop']):.1f} %")
    peers = ("Trainer, bf16, dropout 0", "Trainer, its defaults")
    print("ratios: " + ", ".join(f"{ours / speed[name]:.2f}x {name}" for name in peers))
    products = {str(dtype).removeprefix("torch."): round(ceiling(dtype)) for dtype in (torch.float32, torch.bfloat16)}
    shape = {"model": options.model, "length": options.length, "batch": options.batch, "vocabulary": VOCABULARY}
    print(json.dumps({**shape, "tokens_per_second": {k: round(v) for k, v in speed.items()}, "ceiling_gflops": products}))


if __name__ == "__main__":
    main()
