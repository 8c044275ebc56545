"""Which of two ways to the same numbers a run computes by: `trainer.fused_loss`, `trainer.attention`, which differ in rounding alone, and
`trainer.activation_checkpointing`, which differs in nothing but memory and time.

`auto` is a rule over device, precision and compilation, not a measurement: the same command gives the same bits on the same machine.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import nn

from mlm_lab.errors import UserError
from mlm_lab.models.decoder import TransformerDecoder
from mlm_lab.models.transformer import TransformerEncoder
from mlm_lab.models.vocabulary_loss import VocabularyHead

if TYPE_CHECKING:
    from mlm_lab.training.trainer import TrainerSettings

WRITTEN_OUT = {"auto": None, "written_out": True, "sdpa": False, "varlen": False}


def choose_paths(module: nn.Module, settings: TrainerSettings, device: torch.device, precision: str) -> None:
    """Set the switches of the module's parts. None leaves a part to its own rule.

    Raises:
        UserError: varlen attention where it does not exist.
    """
    by_segments = settings.attention == "varlen"
    dropout = max((part.config.attention_dropout for part in module.modules() if isinstance(part, TransformerEncoder)), default=0.0)
    exists = device.type == "cuda" and find_spec("torch.nn.attention.varlen") is not None  # not in torch 2.9
    if by_segments and not (exists and precision.startswith("bf16") and not settings.compile and not dropout):
        given = f"on {device.type}, precision {precision}, compile {str(settings.compile).lower()}, attention_dropout {dropout:g}"
        raise UserError(
            "varlen attention exists on GPUs, from torch 2.10 on, in bfloat16, not compiled, without dropout",
            where="trainer.attention",
            given=f"varlen {given}",
            fix="trainer.attention=auto",
        )
    for part in module.modules():
        if hasattr(part, "recomputes"):
            part.recomputes = settings.activation_checkpointing
        if isinstance(part, VocabularyHead):
            part.fused = None if settings.fused_loss == "auto" else settings.fused_loss
        elif isinstance(part, TransformerEncoder):
            part.written_out, part.by_segments = WRITTEN_OUT[settings.attention], by_segments and not isinstance(part, TransformerDecoder)
