"""What a person sees of pretraining: what is about to happen, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mlm_lab.console import duration, heading, say, table, warn
from mlm_lab.corruption.replacement import KIND_NAMES
from mlm_lab.training.course import Course
from mlm_lab.training.samples import Sample


def show_course(course: Course, steps: int, precision: str, device: str, seconds_per_step: float | None, done: int = 0) -> None:
    """The run in a few lines, before its first step. seconds_per_step: None where it is not known. done: steps of an earlier start."""
    config = course.config
    lengths = " and ".join(f"{cost.rows:,} rows of {phase.max_length}" for phase, cost in zip(course.phases, course.costs, strict=True))
    sequences = " and ".join(dict.fromkeys(f"{phase.batch_size:,}" for phase in course.phases))
    density = course.mean(lambda cost: cost.density)
    rows = {
        "objective": describe(config.objective),
        "data": f"{describe(config.data)}: {len(course.train.tokens):,} tokens, {lengths} tokens",
        "model": f"{course.parameters:,} parameters; {describe_model(config.model)}; vocabulary {course.train.vocabulary.size:,}",
        "step": f"{sequences} sequences, {course.tokens_per_step:,.0f} corpus tokens, {density:.3f} targets a position, "
        f"{course.flops_per_step.total:.3g} FLOPs",
        "budget": f"{steps:,} steps, {steps * course.tokens_per_step:,.0f} tokens ({course.epochs(steps):.2f} epochs), "
        f"{steps * course.flops_per_step.total:.3g} FLOPs",
        "hardware": f"{device}, precision {precision}{' (auto)' if config.trainer.precision == 'auto' else ''}"
        + (f", threads {torch.get_num_threads()}" if device.endswith("cpu") else ""),
    }
    left = f"{steps - done:,} steps are left" if done else ""
    if seconds_per_step is not None:
        a_step = ", ".join(filter(None, (f"{seconds_per_step:.3g} s a step", left)))
        rows["time"] = f"about {duration((steps - done) * seconds_per_step)} ({a_step})"
    elif left:
        rows["time"] = left
    heading("Pretraining")
    width = max(map(len, rows))
    for name, text in rows.items():
        say(f"  {name:<{width}}  {text}")


def show_result(summary: Mapping[str, Any], samples: list[Sample]) -> None:
    """Held-out metrics beside what frequencies and neighbours give, and what the model fills in. summary: of the run folder."""
    metrics, columns = summary.get("metrics", {}), ["", "loss", "accuracy", "and"]
    rows = _rows_of_val({name.removeprefix("val/"): value for name, value in metrics.items() if name.startswith("val/")})
    for probe, values in probes_of(metrics).items():
        rows.append([probe, _nats(values.get("loss")), _percent(values.get("accuracy")), _by_kind(values)])
    for name, key in {"unigram": "unigram", "neighbouring tokens": "neighbour"}.items():
        if metrics.get(f"{key}_loss") is not None:
            rows.append([name, _nats(metrics[f"{key}_loss"]), _percent(metrics.get(f"{key}_accuracy")), ""])
    rate = [f"{summary['tokens_per_second']:,.0f} positions/s"] if summary.get("tokens_per_second") else []
    table("Held-out text", columns, rows, "; ".join([*_plateau(metrics), *rate]) or None)
    if metrics.get("left_plateau") is False and summary.get("steps") == summary.get("budget_steps"):
        warn("this run did not leave the unigram plateau: what is measured on its encoder says little about the recipe")
    if samples:
        table("Fill-mask, held-out sentences", ["input", "gold", "top 5"], [[s.text, s.gold, " | ".join(s.answers)] for s in samples])


def probes_of(metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """probe/mlm_15 -> its values: loss, accuracy, masked_loss, ..."""
    probes: dict[str, dict[str, Any]] = {}
    for name, value in sorted(metrics.items()):
        if name.startswith("probe/"):
            probe, _, what = name.rpartition("_")
            base, _, word = probe.rpartition("_")
            probe, what = (base, f"{word}_{what}") if word in KIND_NAMES.values() else (probe, what)
            probes.setdefault(probe, {})[what] = value
    return probes


def _by_kind(values: Mapping[str, Any]) -> str:
    """masked 5.391, random 5.786, kept 2.784"""
    return ", ".join(f"{word} {values[f'{word}_loss']:.3f}" for word in KIND_NAMES.values() if values.get(f"{word}_loss") is not None)


def _plateau(metrics: Mapping[str, Any]) -> list[str]:
    if metrics.get("left_plateau") is None:
        return []
    step = metrics.get("plateau_left_step")
    return [f"left the unigram plateau by step {step:,}" if step else "DID NOT LEAVE the unigram plateau"]


def _rows_of_val(metrics: Mapping[str, float]) -> list[list[str | None]]:
    """A row for the run's loss and, where it has several, one for each; what else was measured stands beside."""
    parts = [
        name.removesuffix("_loss")
        for name in metrics
        if name.endswith("_loss") and f"{name.removesuffix('_loss')}_accuracy" in metrics and not _is_of_kind(name)
    ]
    accuracies = [name for name in metrics if name.endswith("_accuracy") and not _is_of_kind(name)]
    single = accuracies[0] if len(accuracies) == 1 and not parts else ""
    shown = {"loss", single, *(f"{part}_{kind}" for part in parts for kind in ("loss", "accuracy"))}
    rest = [
        f"{name.replace('_', ' ')} {value:.4g}"
        for name, value in metrics.items()
        if name not in shown and value is not None and not _is_of_kind(name)
    ]
    rows = [("val (the run's own task)", metrics.get("loss"), metrics.get(single), ", ".join(rest))]
    rows += [(f"val {part}", metrics[f"{part}_loss"], metrics[f"{part}_accuracy"], "") for part in parts]
    return [[name, _nats(loss), _percent(accuracy), others] for name, loss, accuracy, others in rows if loss is not None]


def _is_of_kind(name: str) -> bool:
    """Whether a metric is of the masked, the random or the kept targets alone."""
    return any(f"_{word}_" in name for word in KIND_NAMES.values())


def _nats(loss: float | None) -> str | None:
    return None if loss is None else f"{loss:.3f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def describe(part: object) -> str:
    """MLM(mask_ratio=0.15, ...) -> "MLM mask_ratio=0.15 ...": its first fields."""
    fields = [f"{name}={value}" for name, value in vars(part).items() if value is not None and not name.startswith("_")][:4]
    return " ".join([type(part).__name__, *fields])


def describe_model(model: object) -> str:
    return (
        f"{getattr(model, 'num_layers', '?')} layers, {getattr(model, 'hidden_size', '?')} wide, {getattr(model, 'num_heads', '?')} heads"
    )
