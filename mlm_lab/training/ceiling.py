"""What the machine could do: the rate of one large matrix product in the run's precision, as the measure for the steps' own rate."""

from __future__ import annotations

import time
from functools import cache

import torch

MEASURE_SECONDS = 0.3
_CPU_SIZE, _DEVICE_SIZE = 1024, 8192


@cache
def matmul_flops_per_second(device: torch.device, precision: str) -> float:
    """FLOP/s of a square product on one device with the threads that the process has now (a multiply-add is two). Measured once."""
    dtype = torch.bfloat16 if precision.startswith("bf16") else torch.float64 if precision.startswith("64") else torch.float32
    size = _CPU_SIZE if device.type == "cpu" else _DEVICE_SIZE
    left = torch.full((size, size), 0.5, dtype=dtype, device=device)
    right = torch.full((size, size), 0.25, dtype=dtype, device=device)
    best, until = float("inf"), time.perf_counter() + MEASURE_SECONDS
    _timed_product(left, right)  # the first call chooses and loads the kernel
    while time.perf_counter() < until or best == float("inf"):
        best = min(best, _timed_product(left, right))
    return 2 * size**3 / best


def _timed_product(left: torch.Tensor, right: torch.Tensor) -> float:
    started = time.perf_counter()
    product = left @ right
    product[0, 0].item()  # waits for the device
    return time.perf_counter() - started
