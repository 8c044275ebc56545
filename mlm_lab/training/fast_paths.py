"""Which of two ways to the same numbers a run computes by: `trainer.fused_loss`, `trainer.attention`. They differ in rounding alone.

`auto` is a rule over device, precision and compilation, not a measurement: the same command gives the same bits on the same machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from mlm_lab.models.transformer import TransformerEncoder
from mlm_lab.models.vocabulary_loss import VocabularyHead

if TYPE_CHECKING:
    from mlm_lab.training.trainer import TrainerSettings

WRITTEN_OUT = {"auto": None, "written_out": True, "sdpa": False}


def choose_paths(module: nn.Module, settings: TrainerSettings) -> None:
    """Set the switches of the module's parts. None leaves a part to its own rule."""
    for part in module.modules():
        if isinstance(part, VocabularyHead):
            part.fused = None if settings.fused_loss == "auto" else settings.fused_loss
        elif isinstance(part, TransformerEncoder):
            part.written_out = WRITTEN_OUT[settings.attention]
