"""Steps whose loss or gradient is not finite: skipped where they are computed, without the host's looking; told and counted when metrics
are fetched; and the end of the run where so many come in a row.

    norm of the gradient -> is it finite? (on the device) -> optimiser steps, or leaves weights and moments as they are
    when a row is logged -> which steps were skipped      -> a warning; after IN_A_ROW of them nonfinite.json and an error
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mlm_lab.atomic import write_text
from mlm_lab.errors import Diverged
from mlm_lab.training.course import Course

IN_A_ROW = 20
"""Skipped steps after which a run ends: one is a rare batch or a moment of a too high rate, so many are a run that no longer learns."""
NAME = "nonfinite.json"


def step_where(optimizer: torch.optim.Optimizer, is_finite: torch.Tensor) -> None:
    """Let the optimiser take its step where `is_finite` (a scalar on the parameters' device) holds; otherwise weights, moments and step
    counts stay. The host does not wait for the answer.

    Fused optimisers have a switch for it (that of torch's gradient scaler). With others, what the step changed is put back within it; what
    it made for the first time becomes 0, as AdamW's moments begin.
    """
    inner = getattr(optimizer, "optimizer", optimizer)  # within Lightning's wrapper
    if getattr(inner, "_step_supports_amp_scaling", False):
        inner.grad_scale, inner.found_inf = None, (~is_finite).float()
        optimizer.step()
        return
    before = {id(tensor): tensor.detach().clone() for tensor in _tensors(inner)}

    @torch.no_grad()
    def put_back(*_: Any) -> None:
        for tensor in _tensors(inner):
            earlier = before.get(id(tensor))
            tensor.copy_(torch.where(is_finite.to(tensor.device), tensor, torch.zeros_like(tensor) if earlier is None else earlier))

    hook = inner.register_step_post_hook(put_back)
    try:
        optimizer.step()
    finally:
        hook.remove()


def _tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """All that a step changes."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield parameter
            yield from (value for value in optimizer.state.get(parameter, {}).values() if isinstance(value, torch.Tensor))


@dataclass
class SkippedSteps:
    """Which steps of a run were skipped, the same on every rank. Steps are numbered from 0, as `Pretraining.step` counts before them."""

    total: int = 0
    in_a_row: list[int] = field(default_factory=list)
    """The last steps, if they were skipped."""
    untold: list[int] = field(default_factory=list)
    """Those since the last row."""
    _open: list[tuple[int, torch.Tensor]] = field(default_factory=list, repr=False)

    def add(self, step: int, is_finite: torch.Tensor) -> None:
        """Keeps the answer on its device."""
        self._open.append((step, is_finite))

    def tell(self) -> list[int]:
        """The steps that were skipped since this was last asked."""
        self._fetch()
        told, self.untold = self.untold, []
        return told

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        self._fetch()
        return {"total": self.total, "in_a_row": self.in_a_row, "untold": self.untold}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.total, self.in_a_row, self.untold, self._open = state["total"], list(state["in_a_row"]), list(state["untold"]), []

    def _fetch(self) -> None:
        """All open answers in one copy to the host."""
        if not self._open:
            return
        answers = torch.stack([is_finite for _, is_finite in self._open]).tolist()
        for (step, _), is_finite in zip(self._open, answers, strict=True):
            self.in_a_row = [] if is_finite else [*self.in_a_row, step]
            self.untold += [] if is_finite else [step]
            self.total += not is_finite
        self._open = []


def write_keys(folder: Path, course: Course, total_steps: int, steps: Sequence[int]) -> Path:
    """nonfinite.json: which examples the steps held. With the config of the folder they make the same batches again:
    `Course.dataset(total_steps)[step]`, or the objective's make_batch with these keys."""
    dataset, seeds = course.dataset(total_steps), course.config.seeds
    content = {
        "what": "examples of the steps whose loss or gradient was not finite, before the run was stopped",
        "total_steps": total_steps,
        "seeds": {"order": seeds.order, "corruption": seeds.corruption},
        "steps": [{"step": step, **dataset.describe(step)} for step in steps],
    }
    path = folder / NAME
    write_text(path, json.dumps(content, indent=1) + "\n")
    return path


def diverged(step: int, steps: Sequence[int], keys: Path) -> Diverged:
    """The error after so many skipped steps. The last checkpoint is from before them or holds the same weights."""
    return Diverged(
        f"the loss or its gradient is not finite: {len(steps)} steps in a row were skipped",
        where=f"step {step:,}; their examples: {keys}",
        fix="lower optim.peak_lr, lengthen schedule.warmup_steps, or set optim.gradient_clip=1.0 "
        "(the same command continues from the last checkpoint)",
    )
