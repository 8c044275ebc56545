"""How the machine is shared out among points that run at the same time: cores, threads and GPUs, the same number for each, so that no
result depends on which slot a point got."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mlm_lab.provenance import available_cpus


@dataclass(frozen=True)
class Slot:
    """What one point at a time may use."""

    cpus: tuple[int, ...]
    """Numbers of its cores; empty where the system cannot say (macOS): then only the threads are limited."""
    threads: int
    gpus: tuple[str, ...]
    """As CUDA_VISIBLE_DEVICES names them; empty where there is at most one, which all share."""

    @property
    def environment(self) -> dict[str, str]:
        """What the point's process finds in its environment."""
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else {}
        return {"OMP_NUM_THREADS": str(self.threads), **gpus}


def share_out(jobs: int) -> list[Slot]:
    """One slot for each of the jobs. More jobs than cores or GPUs share them; OMP_NUM_THREADS may ask for fewer threads than cores."""
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    threads = max(1, available_cpus() // jobs)
    threads = min(threads, int(os.environ.get("OMP_NUM_THREADS") or threads))
    gpus = _visible_gpus()
    return [Slot(_part(cpus, jobs, i), threads, _part(gpus, jobs, i) if len(gpus) > 1 else ()) for i in range(jobs)]


def _part(things: Sequence, jobs: int, i: int) -> tuple:
    """The i-th of `jobs` equal parts; where there are fewer things than jobs, one that others have too. The rest of an unequal division
    is left to the system."""
    size = len(things) // jobs
    if size:
        return tuple(things[i * size : (i + 1) * size])
    return (things[i % len(things)],) if things else ()


def _visible_gpus() -> list[str]:
    """torch has been imported by then where its answer matters (a point's hash asks it for the precision)."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name]
    torch = sys.modules.get("torch")
    return [str(number) for number in range(torch.cuda.device_count())] if torch is not None else []
