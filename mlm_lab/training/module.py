"""The LightningModule of every objective: a whole optimiser step in each training_step, and a state that is one integer.

dataset[step] -> this rank's share -> training/step.py -> clip -> AdamW at the schedule's factor of this step -> step + 1
                                                                  where the gradient is finite (training/finite.py)
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from hashlib import blake2b
from typing import Any

import lightning
import torch

from mlm_lab.training import step_times
from mlm_lab.training.calibration import seconds_per_step
from mlm_lab.training.course import Course
from mlm_lab.training.data import step_loader
from mlm_lab.training.fast_paths import choose_paths
from mlm_lab.training.finite import SkippedSteps, step_where
from mlm_lab.training.metrics import LOSS_PREFIX, Meter
from mlm_lab.training.phases import Phase
from mlm_lab.training.sharding import is_sharded, shard, whole_state
from mlm_lab.training.step import accumulate_gradients, clip_gradient, compile_module
from mlm_lab.training.weights import fresh_module
from mlm_lab.training.xla import average_gradients, close_step, seed_generators
from mlm_lab.types import ObjectiveModule

CALIBRATION_SECONDS = 10.0
"""Time spent on measuring a step where the budget is in hours."""


class Pretraining(lightning.LightningModule):
    """Trains an objective's module. What changes from step to step is a function of `step`: the batch, the learning rate, dropout.

    Attributes:
        total_steps: the budget in steps (from `setup` on).
        step: optimiser steps done.
        meter: losses and metrics since the last log row, on the device.
        skipped: steps whose gradient was not finite.
        step_time: what a budget in hours was turned into steps by, {key, seconds} (step_times.py); None where it was not.
        stop_requested: set by the signal handler of this process; `should_stop` says whether all ranks agree.
    """

    def __init__(self, course: Course, frozen_steps: int | None = None):
        """frozen_steps: the horizon that an earlier start of this run found, so that a budget in hours is not measured again."""
        super().__init__()
        self.automatic_optimization = False
        config = course.config
        self.course, self.settings, self.optim, self.dropout_seed = course, config.trainer, config.optim, config.seeds.corruption
        self.module = course.module
        self.total_steps = frozen_steps
        self.step = 0
        self.meter, self.skipped = Meter(), SkippedSteps()
        self.stop_requested = False
        self._stops: torch.Tensor | None = None
        self.step_time: dict[str, str | float] | None = None
        self._seconds_per_step: float | None = None

    def setup(self, stage: str) -> None:
        """Choose how the module computes, and turn the budget into steps: the same number on every rank, the schedules' horizon."""
        on_host = self.trainer.strategy.root_device.type == "cpu"
        chosen = self.settings.static_shapes
        self.module.static_shapes = self.settings.compile or not on_host if chosen == "auto" else chosen
        choose_paths(self.module, self.settings, self.trainer.strategy.root_device, str(self.trainer.precision))
        if self.settings.compile and self._device_mesh is None:
            compile_module(self.module)
        # Timed from here on, where the module computes as it will in training.
        steps = self.total_steps or self.course.steps(self._shared_seconds_per_step)
        self.total_steps = self.trainer.strategy.broadcast(steps)
        self.factor = self.course.config.schedule.build(self.total_steps)

    def configure_model(self) -> None:
        """After `setup`, where the strategy has set up a mesh of ranks: cut the module into parts."""
        if self._device_mesh is None or is_sharded(self.module):
            return
        shard(self.module, self._device_mesh["data_parallel"])
        if self.settings.compile:
            compile_module(self.module)

    def _shared_seconds_per_step(self) -> float:
        """What the runs under one output_dir whose steps cost the same go by: of an earlier one, or measured now."""
        config, strategy = self.course.config, self.trainer.strategy
        key = step_times.key_of(config, self.trainer.world_size)
        seconds = strategy.broadcast(step_times.known(config.output_dir, key))  # so that all ranks measure, or none
        if seconds is None:
            seconds = self.seconds_per_step(CALIBRATION_SECONDS)
            if self.trainer.is_global_zero:
                seconds = step_times.publish(config.output_dir, key, seconds)
            seconds = strategy.broadcast(seconds)
        self.step_time = {"key": key, "seconds": seconds}
        return seconds

    def seconds_per_step(self, enough_seconds: float, enough_steps: float = math.inf) -> float | None:
        """Time of the run's average step on this machine, measured on a copy the first time that it is asked for. None where there is no
        copy, since each rank has a part alone; in `setup` it is still whole."""
        if self._seconds_per_step is None and is_sharded(self.module):
            return None
        if self._seconds_per_step is None:
            phases = self.course.phases
            self._seconds_per_step = sum(phase.share * self._measure(phase, enough_seconds / len(phases), enough_steps) for phase in phases)
        return self._seconds_per_step

    def _measure(self, phase: Phase, enough_seconds: float, enough_steps: float) -> float:
        return seconds_per_step(
            self.module,
            self.optim,
            lambda step: self.course.sample_batch(step, self.global_rank, self.trainer.world_size, phase.number),
            device=self.trainer.strategy.root_device,
            micro_batch_size=self.settings.micro_batch_size,
            context=self.trainer.precision_plugin.forward_context,
            enough_seconds=enough_seconds,
            enough_steps=enough_steps,
        )

    def train_dataloader(self) -> Any:
        dataset = self.course.dataset(self.total_steps, self.global_rank, self.trainer.world_size)
        pin_memory = self.trainer.strategy.root_device.type == "cuda"
        settings = self.settings
        return step_loader(dataset, self.step, self.total_steps, settings.num_workers, pin_memory, settings.timeout_seconds)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = self.optim.build(self.module)
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        return optimizer

    def training_step(self, batch: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]], batch_idx: int) -> None:
        inputs, facts = batch
        close_step(self.device)  # whatever callbacks have left open
        seed_generators(_dropout_key(self.dropout_seed, self.step, self.global_rank), self.device)
        optimizer = self.optimizers()
        counts = self.module.target_counts(inputs)
        outputs = accumulate_gradients(
            self.module,
            inputs,
            self._over_ranks(counts),
            micro_batch_size=self.settings.micro_batch_size,
            world_size=self.trainer.world_size,
            backward=self.manual_backward,
            without_sync=getattr(self.trainer.strategy, "block_backward_sync", nullcontext),
        )
        average_gradients(optimizer.optimizer, self.device, self.trainer.world_size)
        norm = clip_gradient(self.module, self.optim.gradient_clip)
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.factor(self.step)
        is_finite = torch.isfinite(norm)
        self.skipped.add(self.step, is_finite)
        self._record(counts, outputs, facts, norm, is_finite)
        step_where(optimizer, is_finite)  # the last thing that is computed: an XLA device's step is closed in it
        optimizer.zero_grad()
        self.step += 1

    def _over_ranks(self, counts: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Sums over ranks. The wish to stop travels with them, so that all ranks stop at the same step."""
        if self.trainer.world_size == 1:
            return counts
        stop = torch.tensor(int(self.stop_requested), device=self.device)
        totals = self.reduce(torch.stack([*counts.values(), stop]))
        self._stops = totals[-1]
        return dict(zip(counts, totals, strict=False))

    def whole(self) -> ObjectiveModule:
        """The objective's module as one piece: a copy on the CPU where each rank has a part. Every rank calls it."""
        if not is_sharded(self.module):
            return self.module
        state = whole_state(self.module)
        copy = fresh_module(self.course.config, self.course.train.vocabulary)
        copy.load_state_dict(state)
        copy.static_shapes = self.module.static_shapes
        return copy

    def reduce(self, values: torch.Tensor) -> torch.Tensor:
        """Sum over ranks."""
        return self.trainer.strategy.reduce(values, reduce_op="sum")

    @property
    def should_stop(self) -> bool:
        """Whether some rank was asked to stop, by what all ranks know. It was reduced before the last step's forward, so reading it keeps
        the host at most a step ahead of the device."""
        if self.trainer.world_size == 1:
            return self.stop_requested
        return self._stops is not None and bool(self._stops.item())

    def _record(
        self, counts: dict[str, torch.Tensor], outputs: list, facts: dict[str, torch.Tensor], norm: torch.Tensor, counts_for: torch.Tensor
    ) -> None:
        """counts_for: whether the step was taken; the losses of one that was not are in no mean."""
        for name, count in counts.items():
            self.meter.add(f"{LOSS_PREFIX}{name}", sum(output.losses[name] for output in outputs), count, counts_for)
        for output in outputs:
            self.meter.add_all(output.metrics, counts_for)
        for name, pair in facts.items():
            self.meter.add(name, pair[0], pair[1])
        # The norm is the same on every rank: each adds its share, so that the sum over ranks is one norm a step.
        share = 1.0 / self.trainer.world_size
        self.meter.add("gradient_norm", norm * share, torch.full_like(norm, share), counts_for)


def _dropout_key(seed: int, step: int, rank: int) -> int:
    """Seed of torch's generators for this step: of the tuple, never a sum of its parts."""
    return int.from_bytes(blake2b(f"dropout/{seed}/{step}/{rank}".encode(), digest_size=8).digest(), "little") >> 1
