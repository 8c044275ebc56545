"""Pretrain encoders, vary the objective and its masking, and compare what comes out.

`from mlm_lab import compose, run`: `run(compose(["objective.mask_ratio=0.4"]))` does what `python -m mlm_lab objective.mask_ratio=0.4` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlm_lab.config import RunConfig, compose, run

__all__ = ["RunConfig", "compose", "run"]


def __getattr__(name: str) -> object:
    """Import Hydra only when one of the three is asked for: importing a part of mlm_lab stays cheap."""
    if name in __all__:
        from mlm_lab import config

        return getattr(config, name)
    raise AttributeError(f"module 'mlm_lab' has no attribute {name!r}")
