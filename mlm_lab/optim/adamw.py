"""AdamW with decoupled weight decay on matrices only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlm_lab.errors import require

if TYPE_CHECKING:
    import torch


FUSED_ON = {"cpu", "cuda", "mps", "xpu"}
"""Devices for which torch has the fused kernel; XLA, which fuses what it compiles, refuses it."""


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Loshchilov & Hutter 2019, torch's fused kernel where there is one."""

    peak_lr: float
    """Learning rate at the end of the warm-up; the schedule is a factor of it."""
    betas: tuple[float, float]
    """Decay of the running means of the gradient and of its square."""
    eps: float
    """Added to the root of the second moment."""
    weight_decay: float
    """Decay of the matrices; biases, norms and the relative-position bias have none."""
    gradient_clip: float | None
    """Largest norm of the whole gradient; null: no clipping."""

    def __post_init__(self) -> None:
        require(
            ("peak_lr", self.peak_lr, self.peak_lr > 0, "above 0"),
            ("betas", self.betas, len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas), "two numbers in [0, 1)"),
            ("eps", self.eps, self.eps > 0, "above 0"),
            ("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or more"),
            ("gradient_clip", self.gradient_clip, self.gradient_clip is None or self.gradient_clip > 0, "above 0, or null"),
        )

    def build(self, module: torch.nn.Module) -> torch.optim.Optimizer:
        """Two groups, decayed and not, in the module's order of parameters."""
        import torch

        decayed, undecayed = decay_groups(module)
        devices = {p.device.type for p in (*decayed, *undecayed)}
        kernel = {"fused": True} if devices <= FUSED_ON else {"capturable": devices == {"xla"}}  # its step counts on the device too
        groups = [{"params": decayed, "weight_decay": self.weight_decay}, {"params": undecayed, "weight_decay": 0.0}]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=self.peak_lr, betas=tuple(self.betas), eps=self.eps, **kernel
        )


def decay_groups(module: torch.nn.Module) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """Trainable parameters with decay (matrices, embeddings) and without: biases, norms (vectors), and the relative-position bias."""
    from mlm_lab.models.relative_bias import RelativeBias

    without = {id(p) for part in module.modules() if isinstance(part, RelativeBias) for p in part.parameters()}
    trainable = [p for p in module.parameters() if p.requires_grad]
    decayed = [p for p in trainable if p.ndim >= 2 and id(p) not in without]
    kept = {id(p) for p in decayed}
    return decayed, [p for p in trainable if id(p) not in kept]
