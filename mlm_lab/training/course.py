"""What a run will be before a step is done: its data, its module, and what an average step costs. `plan` prints it, `pretrain` runs it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mlm_lab.data.token_store import TokenStore
from mlm_lab.models.decoder import TransformerDecoder
from mlm_lab.training.budget import StepFacts
from mlm_lab.training.data import ATTENTION_MASKS, PhaseDataset, StepDataset
from mlm_lab.training.phases import Phase, borders, examples_until, phase_at, phases_of, steps_until
from mlm_lab.training.step import TensorBatch
from mlm_lab.training.weights import fresh_module
from mlm_lab.types import Flops, ObjectiveModule, Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlm_lab.run_config import RunConfig


@dataclass(frozen=True)
class PhaseCosts:
    """What a step of a phase costs, over all ranks. Targets and padding are those of a sample batch, the rest of all batches."""

    rows: int
    """Examples of the first epoch."""
    tokens: float
    """Raw corpus tokens of an average step."""
    positions: int
    """Inputs of encoder and decoder, padding included: what a forward computes."""
    padding: int
    """Padding among the positions."""
    targets: dict[str, int]
    """Of each loss."""
    flops: Flops
    """Forward and backward; `head` is the vocabulary projection's part. All modules of the objective, generator and decoder too."""

    @property
    def density(self) -> float:
        """Targets of all losses for each position that is not padding: what a forward is told (0.15 for BERT, 1 for a causal model)."""
        return sum(self.targets.values()) / max(self.positions - self.padding, 1)


class Course:
    """The run that a config describes, over a token store.

    Attributes:
        train, validation: the store's splits.
        phases: stretches of steps with rows of one length; one, unless the config has length_phases.
        module: the objective's module with its initial weights.
    """

    def __init__(self, config: RunConfig, train: TokenStore, validation: TokenStore):
        self.config, self.train, self.validation = config, train, validation
        self.phases = phases_of(config)
        self.module: ObjectiveModule = fresh_module(config, self.train.vocabulary)
        self._samples: dict[tuple[int, int, int], PhaseDataset] = {}

    @classmethod
    def open(cls, config: RunConfig, store_folder: Path) -> Course:
        return cls(config, TokenStore.open(store_folder, "train"), TokenStore.open(store_folder, "validation"))

    def dataset(self, total_steps: int, rank: int = 0, world_size: int = 1) -> StepDataset:
        """The run's batches, for a run of so many steps."""
        firsts = borders(self.phases, total_steps)
        horizon = examples_until(self.phases, total_steps, total_steps)
        return StepDataset(
            [
                self._part(
                    phase,
                    rank,
                    world_size,
                    first_step=first,
                    first_example=examples_until(self.phases, total_steps, first),
                    horizon=horizon,
                )
                for phase, first in zip(self.phases, firsts, strict=False)
            ]
        )

    def _part(self, phase: Phase, rank: int, world_size: int, **place: int) -> PhaseDataset:
        config = self.config
        seeds = {"order_seed": config.seeds.order, "corruption_seed": config.seeds.corruption}
        return PhaseDataset(config.objective, self.train, phase, **seeds, rank=rank, world_size=world_size, **place)

    def sample_batch(self, step: int = 0, rank: int = 0, world_size: int = 1, phase: int = 0) -> TensorBatch:
        """A batch of the run, for shapes and for timing. step: from the phase's first on."""
        batch, _ = self._sample(phase, rank, world_size)[step]
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _sample(self, phase: int, rank: int = 0, world_size: int = 1) -> PhaseDataset:
        return self._samples.setdefault((phase, rank, world_size), self._part(self.phases[phase], rank, world_size))

    def plan(self, phase: int = 0) -> Plan:
        """The first epoch of a phase."""
        return self._sample(phase).sampler.plan(0)

    @cached_property
    def costs(self) -> tuple[PhaseCosts, ...]:
        """Of each phase."""
        return tuple(map(self._cost, self.phases))

    def _cost(self, phase: Phase) -> PhaseCosts:
        plan, batch = self.plan(phase.number), self.sample_batch(phase=phase.number)
        masks = [batch[name] for name in ATTENTION_MASKS if name in batch]
        forward = self.module.flops(batch)
        return PhaseCosts(
            rows=len(plan),
            tokens=plan.corpus_tokens / len(plan) * phase.batch_size,
            positions=sum(mask.numel() for mask in masks),
            padding=sum(int((mask == 0).sum()) for mask in masks),
            targets={name: int(count) for name, count in self.module.target_counts(batch).items()},
            flops=Flops(3 * forward.total, 3 * forward.head),
        )

    @property
    def rows(self) -> int:
        """Examples of the first epoch (of the first phase)."""
        return self.costs[0].rows

    @property
    def tokens_per_step(self) -> float:
        """Raw corpus tokens of the run's average step."""
        return self.mean(lambda cost: cost.tokens)

    @property
    def flops_per_step(self) -> Flops:
        """Of the run's average step."""
        return Flops(self.mean(lambda cost: cost.flops.total), self.mean(lambda cost: cost.flops.head))

    def mean(self, value: Callable[[PhaseCosts], float]) -> float:
        """Over the run's steps."""
        return sum(phase.share * value(cost) for phase, cost in zip(self.phases, self.costs, strict=True))

    def total(self, value: Callable[[PhaseCosts], float], total_steps: int, step: int | None = None) -> float:
        """Over the first `step` steps (None: all) of a run of total_steps."""
        counts = steps_until(self.phases, total_steps, total_steps if step is None else step)
        return sum(count * value(cost) for count, cost in zip(counts, self.costs, strict=True))

    def flops(self, total_steps: int, step: int) -> Flops:
        """Of the first `step` steps."""
        return Flops(*(self.total(lambda cost, name=name: getattr(cost.flops, name), total_steps, step) for name in Flops._fields))

    def phase_at(self, total_steps: int, step: int) -> Phase:
        return phase_at(self.phases, total_steps, step)

    def examples(self, total_steps: int, step: int) -> int:
        """Sequences of the first `step` steps, over all ranks."""
        return examples_until(self.phases, total_steps, step)

    @cached_property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.module.parameters())

    def steps(self, seconds_per_step: Callable[[], float] | None) -> int:
        """The budget in optimiser steps."""
        return self.config.budget.steps_for(StepFacts(self.tokens_per_step, self.flops_per_step.total, seconds_per_step))

    def epochs(self, steps: int) -> float:
        """Passes over the text, of all phases together."""
        counts = steps_until(self.phases, steps, steps)
        return sum(n * phase.batch_size / cost.rows for n, phase, cost in zip(counts, self.phases, self.costs, strict=True))

    def memory_bytes(self, micro_batch_size: int | None, bytes_a_value: int) -> int:
        """About what training takes on one device: weights, gradients and AdamW's two moments in float32, and the activations that the
        backward pass needs (17 values of the hidden width a token and layer, Korthikanti et al. 2022, section 4.1, with fused attention)
        in every stack of layers, a generator's and a decoder's too (its cross-attention is left out), and the logits with their gradient
        in float32. Of the phase that takes most."""
        return max(self._memory_bytes(phase, micro_batch_size, bytes_a_value) for phase in self.phases)

    def _memory_bytes(self, phase: Phase, micro_batch_size: int | None, bytes_a_value: int) -> int:
        cost = self.costs[phase.number]
        share = min(micro_batch_size or phase.batch_size, phase.batch_size) / phase.batch_size
        batch = self.sample_batch(phase=phase.number)
        values = 0
        for stack in self.module.children():
            if hasattr(stack, "num_layers"):  # an encoder, a generator, a decoder: no head
                mask = "decoder_attention_mask" if isinstance(stack, TransformerDecoder) else "attention_mask"
                values += batch[mask].numel() * stack.hidden_size * stack.num_layers
        activations = 17 * values * share * bytes_a_value
        logits = 2 * 4 * share * cost.flops.head / (3 * 2 * self.config.model.embedding_width)
        return round(16 * self.parameters + activations + logits)
