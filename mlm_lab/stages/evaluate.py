"""The evaluate stage: what the pretrained encoder is worth on labelled tasks, beside the same encoder from random weights.

    weights of the run ──┐
    random weights ──────┴─> for each task and seed: fine-tune, predict, score (only the cells that are missing) -> summary.json, table

On the first process only; fine-tuning fits on one device.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab import console
from mlm_lab.errors import UserError
from mlm_lab.evaluation import summary
from mlm_lab.evaluation.cells import STARTS, EncodedTask, fingerprint_of, limit_examples, read_cell, run_cell
from mlm_lab.evaluation.tasks import glue
from mlm_lab.ranks import is_main_process
from mlm_lab.run_config import config_hash, evaluation_key
from mlm_lab.training.allocator import keep_large_blocks

if TYPE_CHECKING:
    import torch
    from lightning.fabric import Fabric

    from mlm_lab.evaluation.task import Task
    from mlm_lab.run_config import RunConfig
    from mlm_lab.run_folder import RunFolder
    from mlm_lab.tokenizers.loading import LoadedTokenizer


def check(config: RunConfig) -> None:
    """Refuse, before anything is prepared, what would stop the stage later.

    Raises:
        UserError: a task's files are missing, rows are longer than the encoder can read, a left-to-right encoder would be read at its
            first token, `pretrained` is no run folder.
    """
    source = source_of(config)
    for task in config.tasks.values():
        task.check(config.evaluation)
        if config.evaluation.pooling == "cls" and task.pools(config.evaluation) and getattr(source.objective, "causal", False):
            raise UserError(
                "the first token of a left-to-right encoder has seen nothing but itself, so that no task can be told from it",
                given="evaluation.pooling=cls",
                fix="evaluation.pooling=mean or last",
            )
        source.model.check_length(row_length(task, config, source), f"max_length of {task.name} (evaluation.max_length)")


def source_of(config: RunConfig) -> RunConfig:
    """The config of the run whose encoder is evaluated: of `pretrained` where nothing is pretrained here, else this one."""
    if config.pretrained is None or "pretrain" in config.stages:
        return config
    from mlm_lab.config import load

    if not (Path(config.pretrained).expanduser() / "config.yaml").exists():
        raise UserError("this is not a run folder: it has no config.yaml", given=f"pretrained={config.pretrained}")
    return load(Path(config.pretrained).expanduser())


def row_length(task: Task, config: RunConfig, source: RunConfig) -> int:
    """Tokens of a task's examples: its own choice, that of `evaluation`, that of pretraining."""
    return task.max_length or config.evaluation.max_length or source.max_length


def run(config: RunConfig, folder: RunFolder) -> None:
    """Run the missing cells of every task, record them in summary.json and show the table.

    Raises:
        UserError: the run has no weights, a task's files cannot be read.
    """
    if not config.tasks or not is_main_process():
        return
    console.heading("Evaluation")
    keep_large_blocks()
    cells = Cells(config, folder)
    results = {}
    for task in config.tasks.values():
        results[task.name] = cells.run_task(task)
        folder.update_summary(evaluation={task.name: results[task.name]})
    if (average := glue.average(results)) is not None:
        results["glue"] = {glue.AVERAGE_NAME: average}
        folder.update_summary(evaluation={"glue": results["glue"]})
    show(results)


class Cells:
    """The cells of one run. Weights, tokenizer and device are made when the first missing cell asks for them."""

    def __init__(self, config: RunConfig, folder: RunFolder):
        self.config, self.folder, self.source = config, folder, source_of(config)
        self.run_hash = config_hash(config)
        self.weights = folder.path if self.source is config else Path(config.pretrained).expanduser()
        self._encoders: dict[str, torch.nn.Module] = {}
        self._tokenizer: LoadedTokenizer | None = None
        self._fabric: Fabric | None = None

    def run_task(self, task: Task) -> dict[str, dict]:
        """metric -> the numbers of all seeds."""
        evaluation, first_seed = self.config.evaluation, self.config.seeds.finetune
        seeds = range(first_seed, first_seed + evaluation.seeds)
        starts = STARTS if evaluation.floor else STARTS[:1]
        places = {(start, seed): self._place(task, seed) / start for start in starts for seed in seeds}
        data = task.load(evaluation, self.config.cache_dir)
        data = replace(data, train=limit_examples(data.train, evaluation.train_limit, first_seed))  # for the baselines too
        for note in data.notes:
            console.say(f"{task.name}: {note}")
        fingerprint = fingerprint_of(data)
        records = {cell: read_cell(place, fingerprint) for cell, place in places.items()}
        if None in records.values():
            encoded = EncodedTask.of(task, data, fingerprint, self.tokenizer, row_length(task, self.config, self.source))
            for (start, seed), place in places.items():
                if records[start, seed] is None:
                    records[start, seed] = self._run(encoded, start, seed, place)
        by_start = {start: {seed: records[start, seed] for seed in seeds} for start in starts}
        return summary.summarise(by_start["pretrained"], by_start.get("floor", {}), task.baselines(data))

    def _place(self, task: Task, seed: int) -> Path:
        return self.folder.evaluation_folder(task.name, seed, evaluation_key(self.run_hash, self.config, task.name, seed))

    def _run(self, encoded: EncodedTask, start: str, seed: int, place: Path) -> dict:
        encoder = self.encoder(start)
        recipe = encoded.recipe(self.config.evaluation, start, encoder.hidden_size)
        title = f"{encoded.task.name}, {'pretrained' if start == 'pretrained' else 'random start'}, seed {seed}"
        record = run_cell(place, encoded, encoder, recipe, seed, self.fabric, self.tokenizer.vocabulary.pad_id, title)
        if record["status"] == "failed":
            console.warn(f"{title}: failed: {record['reason']}")
        return record

    @property
    def tokenizer(self) -> LoadedTokenizer:
        if self._tokenizer is None:
            from mlm_lab.tokenizers.loading import load
            from mlm_lab.training.weights import weights_file

            weights_file(self.weights)  # a run that has none has no tokenizer either
            self._tokenizer = load(self.weights)
        return self._tokenizer

    def encoder(self, start: str) -> torch.nn.Module:
        """pretrained: the run's weights; floor: the random weights that the run itself started from."""
        if start not in self._encoders:
            from mlm_lab.training.weights import fresh_module, load_module

            vocabulary = self.tokenizer.vocabulary
            if start == "pretrained":
                self._encoders[start] = load_module(self.weights, self.source, vocabulary).encoder
            else:
                self._encoders[start] = fresh_module(self.source, vocabulary).encoder
        return self._encoders[start]

    @property
    def fabric(self) -> Fabric:
        """One device, in the precision of pretraining."""
        if self._fabric is None:
            from lightning.fabric import Fabric

            from mlm_lab.training.trainer import resolve_precision

            logging.getLogger("lightning.fabric").setLevel(logging.WARNING)  # it announces the precision, which the run has shown
            self._fabric = Fabric(accelerator=self.config.trainer.accelerator, devices=1, precision=resolve_precision(self.config.trainer))
        return self._fabric


def show(results: Mapping[str, Mapping[str, dict]]) -> None:
    """The table of results, and what to be careful about."""
    console.table("Downstream tasks", summary.COLUMNS, summary.table_rows(results), note=summary.NOTE)
    for task, metrics in results.items():
        for line in summary.flags(task, metrics):
            console.warn(line)
