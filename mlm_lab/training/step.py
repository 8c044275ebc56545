"""One optimiser step's gradient, whatever the number of ranks and micro-batches: each loss is its sum over the whole step divided by its
count over the whole step, so the counts are reduced before the first backward.

    batch (this rank's share) -> target counts, reduced over ranks
        -> micro-batches -> sum_k weight_k * sum_k / max(count_k, 1) -> backward
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch

from mlm_lab.types import ObjectiveModule, Output

TensorBatch = Mapping[str, torch.Tensor]


def micro_batches(batch: TensorBatch, size: int | None) -> Iterator[dict[str, torch.Tensor]]:
    """Cut a batch into parts of `size` sequences (the last may be smaller); None: the batch itself."""
    total = len(batch["input_ids"])
    size = size or total
    for start in range(0, total, size):
        yield {name: value[start : start + size] for name, value in batch.items()}


def accumulate_gradients(
    module: ObjectiveModule,
    batch: TensorBatch,
    counts: Mapping[str, torch.Tensor],
    *,
    micro_batch_size: int | None,
    world_size: int = 1,
    backward: Callable[[torch.Tensor], None] = torch.Tensor.backward,
    without_sync: Callable[[], AbstractContextManager] = nullcontext,
) -> list[Output]:
    """Add the step's gradient to the parameters'.

    counts: targets of each loss over all ranks and micro-batches. A count of 0 gives a loss of 0, not NaN.
    world_size: factor against the averaging over ranks that distributed strategies do.
    without_sync: context of all micro-batches but the last, whose backward exchanges the gradients.
    """
    weights = {name: weight * world_size / counts[name].clamp(min=1) for name, weight in module.loss_weights.items()}
    parts = list(micro_batches(batch, micro_batch_size))
    outputs = []
    for number, part in enumerate(parts, start=1):
        with nullcontext() if number == len(parts) else without_sync():
            output = module(part)
            backward(sum(weights[name] * loss for name, loss in output.losses.items()))
        outputs.append(Output({name: loss.detach() for name, loss in output.losses.items()}, output.metrics))
    return outputs


def compile_module(module: ObjectiveModule) -> None:
    """Compile in place: with static shapes for the shapes that come, once each; otherwise as torch.compile decides."""
    module.compile(dynamic=False if module.static_shapes else None)


def clip_gradient(module: torch.nn.Module, limit: float | None) -> torch.Tensor:
    """Norm of the whole gradient, of all ranks' parts; the gradient is scaled down to `limit` where it is longer (None: left alone)."""
    gradients = [p for p in module.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in gradients])
    if limit is not None:
        torch.nn.utils.clip_grads_with_norm_(gradients, limit, norm)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
