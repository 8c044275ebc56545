"""What XLA devices (TPUs) need besides. Operations are recorded there and run as one compiled graph where a step is closed: what one step
leaves open becomes part of the next, which then is another graph, compiled anew. On other devices nothing here adds anything.

    [leftovers run] -> forward, backward, metrics, optimiser, put-back -> [closed by Lightning's precision plugin] -> the same graph again
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from lightning.fabric.plugins import Precision


def close_step(device: torch.device) -> None:
    """Run what is recorded so far, without waiting for it."""
    if device.type == "xla":
        import torch_xla

        torch_xla.sync()


def seed_generators(key: int, device: torch.device) -> None:
    """torch's, and the device's own, which `torch.manual_seed` leaves alone."""
    torch.manual_seed(key)
    if device.type == "xla":
        import torch_xla

        torch_xla.manual_seed(key)


def average_gradients(optimizer: torch.optim.Optimizer, device: torch.device, world_size: int) -> None:
    """On several XLA devices the optimiser's own step would exchange them, after they were clipped; everywhere else backward has."""
    if device.type == "xla" and world_size > 1:
        import torch_xla.core.xla_model as xm

        xm.reduce_gradients(optimizer)


def mixed_precision(base: type[Precision]) -> Precision:
    """Lightning's precision for XLA (`base`: the Trainer's or Fabric's) with what it lacks: float32 weights, products in bfloat16."""

    class Mixed(base):
        def __init__(self) -> None:
            super().__init__("32-true")
            self.precision = "bf16-mixed"

        def forward_context(self) -> AbstractContextManager[Any]:
            return torch.autocast("xla", dtype=torch.bfloat16)

    return Mixed()
