"""Which of the processes of a run this one is, from the environment that the launchers set; imports nothing."""

from __future__ import annotations

import os

_LAUNCHERS = ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID")
"""torchrun sets RANK, Lightning's own launcher LOCAL_RANK and NODE_RANK, Slurm SLURM_PROCID. All that are set are 0 on the first process
of a run only: each other process has at least one that is not."""


def is_main_process() -> bool:
    """Whether this is global rank 0: the only one that claims the run folder, prepares, prints and writes."""
    return all(os.environ.get(name, "0") == "0" for name in _LAUNCHERS)
