"""How long a step takes here, found by doing a few on a copy: the run's own weights, optimiser and random state are left alone."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from mlm_lab.training.step import TensorBatch, accumulate_gradients, clip_gradient, compile_module
from mlm_lab.training.xla import close_step
from mlm_lab.types import ObjectiveModule


def seconds_per_step(
    module: ObjectiveModule,
    optim: Any,
    batches: Callable[[int], TensorBatch],
    *,
    device: torch.device,
    micro_batch_size: int | None,
    context: Callable[[], AbstractContextManager],
    enough_seconds: float,
    enough_steps: float = math.inf,
) -> float:
    """Mean time of a step after a first one that warms up, without the fastest and the slowest quarter (the interquartile mean): what else
    the machine does for a moment does not count, and what slows many steps does.

    batches: step -> this rank's share. context: the run's precision. enough_seconds, enough_steps: when no further step is
    begun, whichever comes first.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        clone = copy.deepcopy(module).to(device).train()
        if module._compiled_call_impl is not None:
            compile_module(clone)  # a copy is not compiled; what the compiler makes of it is cached for the run
        optimizer = optim.build(clone)
        times: list[float] = []
        while len(times) < 2 or (sum(times[1:]) < enough_seconds and len(times) < enough_steps):
            started = time.perf_counter()
            batch = {name: value.to(device) for name, value in batches(len(times)).items()}
            with context():
                accumulate_gradients(clone, batch, clone.target_counts(batch), micro_batch_size=micro_batch_size)
            norm = clip_gradient(clone, optim.gradient_clip)
            optimizer.step()
            optimizer.zero_grad()
            close_step(device)
            norm.item()  # waits
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - started)
    timed = sorted(times[1:])
    middle = timed[len(timed) // 4 : len(timed) - len(timed) // 4]
    return sum(middle) / len(middle)
