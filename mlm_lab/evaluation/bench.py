"""Where cells are measured: the tokenizer, the device, the weights and the examples of one run, made when the first cell asks for them.

Each worker process has its own, and computes with one thread on the CPU: a cell's numbers then depend neither on how many stand side by
side nor on the machine's number of cores, and two cells with a thread each take less time than one after the other with two.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.evaluation.cells import ENCODER, Cell, fail_cell, run_cell
from mlm_lab.evaluation.encoded_once import encoded_once
from mlm_lab.evaluation.measures.measure import Subject
from mlm_lab.evaluation.protocol import carve, with_setting
from mlm_lab.evaluation.task import FLOOR, FineTunedTask
from mlm_lab.interchange.folder import is_hugging_face

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from mlm_lab.evaluation.measures.measure import Measure
    from mlm_lab.evaluation.task import Task, TaskData
    from mlm_lab.run_config import RunConfig
    from mlm_lab.tokenizers.loading import LoadedTokenizer
    from mlm_lab.types import ObjectiveModule


def row_length(task: Task, config: RunConfig, source: RunConfig) -> int:
    """Tokens of a task's examples: its own choice, that of `evaluation`, that of pretraining."""
    return task.max_length or config.evaluation.max_length or source.max_length


class Bench:
    """What the cells of one run need."""

    def __init__(self, config: RunConfig, source: RunConfig, weights: Path, data: Mapping[str, TaskData]):
        """config: what is asked for. source: of the run whose weights lie in the folder `weights`, or what to make of a Hugging Face folder
        there. data: task -> examples."""
        self.config, self.source, self.weights, self.data = config, source, weights, data
        self._module: tuple[tuple, ObjectiveModule] | None = None
        self._measure: tuple[tuple, Measure] | None = None

    def run(self, cell: Cell) -> dict:
        """Measure a cell that is missing, and return its record.

        Raises:
            UserError: it does not fit in memory; what else a `Measure` refuses.
        """
        from mlm_lab.training.failures import explained

        with cell.lock():
            if (record := cell.read()) is not None:  # another run has measured the same floor meanwhile
                return record
            if cell.before is not None and not (cell.before / ENCODER).exists():
                return fail_cell(cell, f"there is no encoder to start from: {cell.before.parent.name} has failed")
            sizes, smaller = self._memory(cell)
            with self._one_thread(), explained(sizes, self.config.trainer.timeout_seconds, smaller=smaller):
                return run_cell(cell, self.measure(cell), Subject(cell.start, self.module(cell), self.tokenizer, self.fabric, str(cell)))

    def measure(self, cell: Cell) -> Measure:
        """The last one is kept: cells of one task and setting come one after the other."""
        key = (cell.task, cell.setting, cell.carved)
        if self._measure is None or self._measure[0] != key:
            task, data = self.config.tasks[cell.task], self.data[cell.task]
            if cell.carved:
                data = carve(data, self.config.evaluation.grid.heldout_share, cell.task)
            evaluation = with_setting(self.config.evaluation, cell.setting)
            with encoded_once(self.config.cache_dir):
                length = row_length(task, self.config, self.source)
                self._measure = (key, task.measure(data, evaluation, self.tokenizer, length))
        return self._measure[1]

    def module(self, cell: Cell) -> ObjectiveModule:
        """Encoder and pretraining heads: of the run, at the cell's step; or as the run would start with this seed of seeds.init."""
        key = (cell.start, cell.seed if cell.start == FLOOR else cell.step, cell.before)
        if self._module is None or self._module[0] != key:
            module = self.initial_module(cell.seed) if cell.start == FLOOR else self.trained_module(cell.step)
            self._module = (key, module if cell.before is None else _with_encoder(module, cell.before / ENCODER))
        return self._module[1]

    def trained_module(self, step: int | None = None) -> ObjectiveModule:
        """With the run's weights, last or of this step; or with a Hugging Face folder's."""
        from mlm_lab.training.weights import load_module, load_start

        if is_hugging_face(self.weights):
            return load_start(self.weights, self.source, self.tokenizer)[0]
        return load_module(self.weights, self.source, self.tokenizer.vocabulary, step)

    def initial_module(self, init: int) -> ObjectiveModule:
        """The run's module before its first step, had seeds.init been this."""
        from mlm_lab.training.weights import fresh_module

        source = replace(self.source, seeds=replace(self.source.seeds, init=init))
        return fresh_module(source, self.tokenizer.vocabulary).eval()

    @cached_property
    def tokenizer(self) -> LoadedTokenizer:
        from mlm_lab.tokenizers.loading import load
        from mlm_lab.training.weights import weights_file

        if is_hugging_face(self.weights):
            return self.source.tokenizer.load()
        weights_file(self.weights)  # a run that has none has no tokenizer either
        return load(self.weights)

    @cached_property
    def fabric(self) -> Fabric:
        """One device, in the precision of pretraining."""
        from mlm_lab.training.trainer import make_fabric

        return make_fabric(self.config.trainer)

    def _memory(self, cell: Cell) -> tuple[str, str]:
        """The keys that a cell's memory depends on with their values, and what would take less."""
        task, evaluation = self.config.tasks[cell.task], with_setting(self.config.evaluation, cell.setting)
        length = row_length(task, self.config, self.source)
        keys = {f"task.{cell.task}.max_length" if task.max_length else "evaluation.max_length": length}
        if isinstance(task, FineTunedTask):
            place = "evaluation.grid.batch_sizes" if "batch_size" in dict(cell.setting) else "evaluation.batch_size"
            keys[f"task.{cell.task}.batch_size" if task.batch_size else place] = task.batch_size or evaluation.batch_size
        sizes = " ".join(f"{key}={value}" for key, value in keys.items())
        smaller = f"a smaller {' or '.join(keys)}, or evaluation.jobs=1 where cells stand side by side; the cells that are done stay"
        return f"{cell}: {sizes}", smaller

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        import torch

        threads = torch.get_num_threads()
        if self.fabric.device.type == "cpu":
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _with_encoder(module: ObjectiveModule, file: Path) -> ObjectiveModule:
    from safetensors.torch import load_model

    module = copy.deepcopy(module)
    load_model(module.encoder, str(file))
    return module
