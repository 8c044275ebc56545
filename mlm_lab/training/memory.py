"""The most memory that a run's steps have held at once."""

from __future__ import annotations

import resource
import sys

import torch


def begin(device: torch.device) -> None:
    """Forget what came before the steps: measuring a step on a copy, measuring the device. On a CPU it stays: the process has had it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """On a GPU what tensors have held since `begin`; elsewhere the process's largest resident size."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kibibytes
