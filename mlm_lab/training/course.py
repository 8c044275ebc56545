"""What a run will be before a step is done: its data, its module, and what an average step costs. `plan` prints it, `pretrain` runs it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mlm_lab.data.token_store import TokenStore
from mlm_lab.training.budget import StepFacts
from mlm_lab.training.data import StepDataset
from mlm_lab.training.step import TensorBatch
from mlm_lab.training.weights import fresh_module
from mlm_lab.types import Flops, ObjectiveModule

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlm_lab.run_config import RunConfig


class Course:
    """The run that a config describes, over a token store.

    Attributes:
        train, validation: the store's splits.
        module: the objective's module with its initial weights.
        rows: examples of the first epoch.
        tokens_per_step: raw corpus tokens of an average step.
        flops_per_step: forward and backward; `head` is the vocabulary projection's part.
    """

    def __init__(self, config: RunConfig, train: TokenStore, validation: TokenStore):
        self.config, self.train, self.validation = config, train, validation
        self.module: ObjectiveModule = fresh_module(config, self.train.vocabulary)
        first = self.dataset().sampler.plan(0)
        self.rows = len(first)
        self.tokens_per_step = first.corpus_tokens / self.rows * config.batch_size

    @classmethod
    def open(cls, config: RunConfig, store_folder: Path) -> Course:
        return cls(config, TokenStore.open(store_folder, "train"), TokenStore.open(store_folder, "validation"))

    def dataset(self, total_steps: int | None = None, rank: int = 0, world_size: int = 1) -> StepDataset:
        config = self.config
        return StepDataset(
            config.objective,
            self.train,
            max_length=config.max_length,
            batch_size=config.batch_size,
            order_seed=config.seeds.order,
            corruption_seed=config.seeds.corruption,
            total_steps=total_steps,
            rank=rank,
            world_size=world_size,
        )

    def sample_batch(self, step: int = 0, rank: int = 0, world_size: int = 1) -> TensorBatch:
        """A batch of the run, for shapes and for timing."""
        return {name: torch.from_numpy(array) for name, array in self.dataset(None, rank, world_size)[step][0].items()}

    @cached_property
    def flops_per_step(self) -> Flops:
        forward = self.module.flops(self.sample_batch())
        return Flops(3 * forward.total, 3 * forward.head)

    @cached_property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.module.parameters())

    def steps(self, seconds_per_step: Callable[[], float]) -> int:
        """The budget in optimiser steps."""
        return self.config.budget.steps_for(StepFacts(self.tokens_per_step, self.flops_per_step.total, seconds_per_step))

    def epochs(self, steps: int) -> float:
        return steps * self.config.batch_size / self.rows

    def memory_bytes(self, micro_batch_size: int | None, bytes_a_value: int) -> int:
        """About what training takes on one device: weights, gradients and AdamW's two moments in float32, and the activations that the
        backward pass needs (17 values of the hidden width a token and layer, Korthikanti et al. 2022, section 4.1, with fused attention),
        and the logits with their gradient in float32."""
        batch = self.sample_batch()
        rows = min(micro_batch_size or len(batch["input_ids"]), len(batch["input_ids"]))
        share = rows / len(batch["input_ids"])
        width, layers = self.module.encoder.hidden_size, self.module.encoder.num_layers
        activations = 17 * batch["input_ids"].numel() * share * width * layers * bytes_a_value
        logits = 2 * 4 * batch["labels"].numel() * share * self.train.vocabulary.padded_size
        return round(16 * self.parameters + activations + logits)
