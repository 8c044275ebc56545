"""What a person sees of pretraining: what is about to happen, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mlm_lab.console import duration, heading, say, table
from mlm_lab.training.course import Course
from mlm_lab.training.samples import Sample


def show_course(course: Course, steps: int, precision: str, device: str, seconds_per_step: float, done: int = 0) -> None:
    """The run in a few lines, before its first step. done: steps of an earlier start."""
    config = course.config
    length = f"{config.max_length} tokens"
    rows = {
        "objective": describe(config.objective),
        "data": f"{describe(config.data)}: {len(course.train.tokens):,} tokens, {course.rows:,} rows of {length}",
        "model": f"{course.parameters:,} parameters; {describe_model(config.model)}; vocabulary {course.train.vocabulary.size:,}",
        "step": f"{config.batch_size} sequences, {course.tokens_per_step:,.0f} corpus tokens, {course.flops_per_step.total:.3g} FLOPs",
        "budget": f"{steps:,} steps, {steps * course.tokens_per_step:,.0f} tokens ({course.epochs(steps):.2f} epochs), "
        f"{steps * course.flops_per_step.total:.3g} FLOPs",
        "hardware": f"{device}, precision {precision}{' (auto)' if config.trainer.precision == 'auto' else ''}"
        + (f", threads {torch.get_num_threads()}" if device.endswith("cpu") else ""),
        "time": f"about {duration((steps - done) * seconds_per_step)} ({seconds_per_step:.3g} s a step"
        + (f", {steps - done:,} steps are left)" if done else ")"),
    }
    heading("Pretraining")
    width = max(map(len, rows))
    for name, text in rows.items():
        say(f"  {name:<{width}}  {text}")


def show_result(summary: Mapping[str, Any], samples: list[Sample]) -> None:
    """Held-out metrics beside the unigram's, and what the model fills in. summary: of the run folder."""
    metrics, columns, rows = summary.get("metrics", {}), ["", "loss", "accuracy"], []
    probes = sorted(name.removesuffix("_loss") for name in metrics if name.startswith("probe/") and name.endswith("_loss"))
    for name, (loss, accuracy) in {
        "val (the run's own masks)": ("val/loss", "val/mlm_accuracy"),
        **{name: (f"{name}_loss", f"{name}_accuracy") for name in probes},
        "unigram on the probe": ("unigram_loss", "unigram_accuracy"),
    }.items():
        if metrics.get(loss) is not None:
            share = metrics.get(accuracy)
            rows.append([name, f"{metrics[loss]:.3f}", None if share is None else f"{100 * share:.1f} %"])
    left = metrics.get("plateau_left_step")
    plateau = [f"left the unigram plateau by step {left:,}" if left else "did not leave the unigram plateau"] if probes else []
    rate = [f"{summary['tokens_per_second']:,.0f} positions/s"] if summary.get("tokens_per_second") else []
    table("Held-out text", columns, rows, "; ".join([*plateau, *rate]) or None)
    if samples:
        table("Fill-mask, held-out sentences", ["input", "gold", "top 5"], [[s.text, s.gold, " | ".join(s.answers)] for s in samples])


def describe(part: object) -> str:
    """MLM(mask_ratio=0.15, ...) -> "MLM mask_ratio=0.15 ...": its first fields."""
    fields = [f"{name}={value}" for name, value in vars(part).items() if value is not None and not name.startswith("_")][:4]
    return " ".join([type(part).__name__, *fields])


def describe_model(model: object) -> str:
    return (
        f"{getattr(model, 'num_layers', '?')} layers, {getattr(model, 'hidden_size', '?')} wide, {getattr(model, 'num_heads', '?')} heads"
    )
