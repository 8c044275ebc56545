"""Those who are compared, each a process of its own that trains laps when it is told to, so that its peak memory is its own and no two
compute at a time:

    python -m tests.benchmarks.contenders NAME SHAPE CACHE_DIR      started by tests.benchmarks.throughput and .gpu

    here -> child   "lap SECONDS"  train so long          child -> here   {"ready": true} once warm
                    "stop"         end                                    {"tokens", "steps", "cpu", "wall"} of each lap
                                                                          {"peak_bytes", "flops_per_token", ...} at the end

ours              what `python -m mlm_lab` runs: Lightning, log rows, bookkeeping, progress bar, checks
bare              the same module, batches and optimiser in the shortest loop: what Lightning and logging take is the difference
trainer_sdpa      Transformers' Trainer at its best: BertForMaskedLM of the same size, bf16, dropout 0, its collator, given the special
trainer_eager     tokens; with the attention that Transformers chooses (SDPA), and with its written-out one, which can be the faster
trainer_grouped   as trainer_sdpa with train_sampling_strategy=group_by_length: for documents, beside the table
trainer_defaults  the same Trainer as it comes: float32, dropout 0.1, SDPA

All have torch's fused AdamW, clip the gradient at 1.0, compute on one thread and keep freed blocks (`training.allocator`). The presets
tiny and mini have a relative-position bias that BERT has not, so ours computes more at the same size.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch

from mlm_lab.config import RunConfig
from mlm_lab.data.token_store import TokenStore
from mlm_lab.stages.prepare import prepare
from mlm_lab.training.allocator import keep_large_blocks
from tests.benchmarks.shapes import BY_NAME, Shape, make_config

WARM_UP_STEPS, SHORTEST_LAP = 3, 2
FOREVER = 1_000_000
"""Steps: nobody gets there."""


class Mark(NamedTuple):
    """Seconds."""

    cpu: float
    wall: float


def mark() -> Mark:
    return Mark(time.process_time(), time.perf_counter())


class Gate:
    """Stands at the beginning of each step: reports a lap that is over, and waits for the next one to be asked for."""

    def __init__(self, speak: Callable[[dict], None], facts: dict[str, Any]):
        self._speak, self._facts = speak, facts
        self._steps, self._tokens, self._warm, self._start, self._enough = 0, 0, False, mark(), 0.0

    def count(self, tokens: int | torch.Tensor) -> None:
        """What a step reads, padding left out."""
        self._tokens = self._tokens + tokens  # on its device: no step waits for it

    def __call__(self) -> None:
        if not self._warm:
            if self._steps == WARM_UP_STEPS:
                self._warm = True
                self._speak({"ready": True})
                self._wait()
        elif self._steps >= SHORTEST_LAP and time.perf_counter() - self._start.wall >= self._enough:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            spent = Mark(*(after - before for after, before in zip(mark(), self._start, strict=True)))
            self._speak({"tokens": int(self._tokens), "steps": self._steps, **spent._asdict()})
            self._wait()
        self._steps += 1

    def _wait(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        command, _, seconds = sys.stdin.readline().strip().partition(" ")
        if command != "lap":
            self._end()
        self._steps, self._tokens, self._enough, self._start = 0, 0, float(seconds), mark()

    def _end(self) -> NoReturn:
        self._speak({"peak_bytes": peak_bytes(), **self._facts})
        os._exit(0)  # in the middle of an endless run


def peak_bytes() -> int:
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def open_stores(config: RunConfig) -> tuple[TokenStore, TokenStore, Path]:
    """Train and validation split, and the tokenizer's file: made the first time."""
    prepared = prepare(config)
    train, validation = (TokenStore.open(prepared.store_folder, split) for split in ("train", "validation"))
    return train, validation, prepared.tokenizer_file


def hide_transformers() -> None:
    """As `pip install mlm_lab` has it: where it is installed, Lightning's torchmetrics would import it, for 100 MB and 2 seconds."""
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name == "transformers":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    importlib.metadata.version = version


def run_ours(shape: Shape, cache_dir: Path, speak: Callable[[dict], None]) -> None:
    hide_transformers()
    import lightning

    from mlm_lab.run_folder import RunFolder
    from mlm_lab.training.callbacks import Announcement, Checkpoints
    from mlm_lab.training.course import Course
    from mlm_lab.training.module import Pretraining
    from mlm_lab.training.plateau import PlateauWatch
    from mlm_lab.training.recorder import Recorder
    from mlm_lab.training.validation import HeldOut

    config = make_config(shape, cache_dir, "trainer.precision=bf16-mixed", *words_of("OURS"))
    course = Course(config, *open_stores(config)[:2])
    gate = Gate(speak, facts_of(course))

    class Watch(lightning.Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: tuple[dict[str, torch.Tensor], Any], number: int) -> None:
            gate()
            gate.count((batch[0]["attention_mask"] != 0).sum())

    held_out = HeldOut(config.objective, course.validation, config.max_length, config.validation.sequences, config.batch_size)
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name))
        recorder = Recorder(folder.metrics_csv, held_out, PlateauWatch.over(held_out, course.train))
        callbacks = [recorder, Checkpoints(folder.checkpoints, recorder), Announcement(folder, recorder), Watch()]
        config.trainer.build(folder=folder.path, loggers=[], callbacks=callbacks).fit(Pretraining(course))


def run_bare(shape: Shape, cache_dir: Path, speak: Callable[[dict], None]) -> None:
    from mlm_lab.training.course import Course

    config = make_config(shape, cache_dir, "trainer.precision=bf16-mixed", *words_of("OURS"))
    course = Course(config, *open_stores(config)[:2])
    gate, module, data = Gate(speak, facts_of(course)), course.module.train(), course.dataset(FOREVER)
    optimizer, factor = config.optim.build(module), config.schedule.build(FOREVER)
    for step in range(FOREVER):
        gate()
        batch = {name: torch.from_numpy(array) for name, array in data[step][0].items()}
        gate.count((batch["attention_mask"] != 0).sum())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = module(batch).losses["mlm"] / module.target_counts(batch)["mlm"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), config.optim.gradient_clip)
        for group in optimizer.param_groups:
            group["lr"] = config.optim.peak_lr * factor(step)
        optimizer.step()
        optimizer.zero_grad()


def words_of(name: str) -> list[str]:
    """Further choices, from the environment: OURS='trainer.fused_loss=false', THEIRS=compile."""
    return os.environ.get(name, "").split()


def facts_of(course: Any) -> dict[str, Any]:
    cost = course.costs[0]
    fill = 1 - cost.padding / cost.positions
    return {"flops_per_token": cost.flops.total / (cost.positions * fill), "fill": fill, "parameters": course.parameters}


def run_trainer(shape: Shape, cache_dir: Path, speak: Callable[[dict], None], *, best: bool, attention: str, order: str = "random") -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    config = make_config(shape, cache_dir)
    store, _, tokenizer_file = open_stores(config)
    vocabulary, model, dropout = store.vocabulary, config.model, 0.0 if best else 0.1
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), **names)
    bert = transformers.BertConfig(
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_layers,
        num_attention_heads=model.num_heads,
        intermediate_size=model.intermediate_size,
        vocab_size=vocabulary.padded_size,
        max_position_embeddings=shape.length,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        attn_implementation=attention,
    )
    module = transformers.BertForMaskedLM(bert)
    gate = Gate(speak, {"parameters": module.num_parameters()})
    if shape.documents:
        module.register_forward_pre_hook(lambda _, args, named: gate.count(named["attention_mask"].sum()), with_kwargs=True)

    class Watch(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            gate()
            gate.count(0 if shape.documents else shape.tokens)  # full rows

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=shape.batch_size,
            max_steps=FOREVER,
            bf16=best,
            use_cpu=not shape.on_gpu,
            train_sampling_strategy=order,
            torch_compile="compile" in words_of("THEIRS"),
            learning_rate=config.optim.peak_lr,
            weight_decay=config.optim.weight_decay,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(
            model=module,
            args=arguments,
            train_dataset=rows_of(store, shape),
            data_collator=transformers.DataCollatorForLanguageModeling(tokenizer),
            callbacks=[Watch()],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()


def rows_of(store: TokenStore, shape: Shape) -> list[dict[str, list[int]]]:
    """Their rows, of the same text: as many as fit end to end, or one document each."""
    inner, vocabulary = shape.length - 2, store.vocabulary
    if shape.documents:
        offsets = store.document_offsets
        parts = [store.tokens[start : min(stop, start + inner)] for start, stop in pairwise(offsets)]
    else:
        parts = list(np.asarray(store.tokens[: len(store.tokens) // inner * inner]).reshape(-1, inner))
    framed = ([vocabulary.cls_id, *part.tolist(), vocabulary.sep_id] for part in parts)
    ones = [{"input_ids": row, "special_tokens_mask": [1, *[0] * (len(row) - 2), 1]} for row in framed]
    return [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in ones]


CONTENDERS: dict[str, Callable[[Shape, Path, Callable[[dict], None]], None]] = {
    "ours": run_ours,
    "bare": run_bare,
    "trainer_sdpa": lambda *given: run_trainer(*given, best=True, attention="sdpa"),
    "trainer_eager": lambda *given: run_trainer(*given, best=True, attention="eager"),
    "trainer_grouped": lambda *given: run_trainer(*given, best=True, attention="sdpa", order="group_by_length"),
    "trainer_defaults": lambda *given: run_trainer(*given, best=False, attention="sdpa"),
}


def main() -> None:
    name, shape, cache_dir = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer

    def speak(content: dict) -> None:
        print(json.dumps(content), file=answers, flush=True)

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    keep_large_blocks()
    CONTENDERS[name](BY_NAME[shape], Path(cache_dir), speak)


if __name__ == "__main__":
    main()
