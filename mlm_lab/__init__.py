"""Pretrain encoders, vary the objective and its masking, and compare what comes out.

from mlm_lab import compose, plot, run
summary = run(compose(["objective.mask_ratio=0.4"]))        what `python -m mlm_lab objective.mask_ratio=0.4` does
plot("runs")                                                the runs' curves, in a notebook
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlm_lab.config import compose
    from mlm_lab.report.plot import plot
    from mlm_lab.run_config import RunConfig
    from mlm_lab.runner import run

__all__ = ["RunConfig", "compose", "plot", "run"]
_HOMES = {"RunConfig": "mlm_lab.run_config", "compose": "mlm_lab.config", "plot": "mlm_lab.report.plot", "run": "mlm_lab.runner"}


def __getattr__(name: str) -> object:
    """Import them only when they are asked for: importing a part of mlm_lab stays cheap."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'mlm_lab' has no attribute {name!r}")
