"""The run's loss curve as a figure, beside what token frequencies alone and the two neighbours of a token give."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURE = "loss.svg"
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#555555"  # Okabe and Ito's, told apart in grey too by line style
HELD_OUT_STYLES = (
    {"color": ORANGE, "marker": "o", "linewidth": 1.6},
    {"color": ORANGE, "marker": "^", "linewidth": 1.0, "linestyle": ":"},
    {"color": GREEN, "marker": "s", "linewidth": 1.6, "linestyle": "--"},
)


def draw_loss_curve(metrics_csv: Path, summary: Mapping[str, Any], figure: Path) -> None:
    """Write an SVG by optimiser step: the training loss, the held-out loss of each probe and of the first one's masked targets (of the
    run's own task where it has no probe), the losses of unigram and neighbours, and the step by which the run had left the plateau.

    metrics_csv: of the run folder. summary: of the run folder, for the last three. The same rows give the same bytes.
    """
    import matplotlib

    with metrics_csv.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0]) if rows else []
    metrics = summary.get("metrics", {})
    with matplotlib.rc_context({"svg.hashsalt": "mlm_lab", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        from matplotlib.figure import Figure

        canvas = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = canvas.subplots()
        axes.plot(*_points(rows, "train/loss"), color=BLUE, linewidth=0.8, alpha=0.7, label="training, the run's own task")
        _draw_held_out(axes, rows, columns)
        _draw_baselines(axes, metrics)
        axes.set_xlabel("optimiser step")
        axes.set_ylabel("cross-entropy (nats a token)")
        axes.set_xlim(left=0)
        axes.legend(frameon=False, fontsize=8)
        canvas.savefig(figure, format="svg", metadata={"Date": None, "Creator": None})


def _draw_held_out(axes: Axes, rows: list[dict[str, str]], columns: list[str]) -> None:
    probes = [name for name in columns if name.startswith("probe/") and f"{name.removesuffix('_loss')}_masked_loss" in columns]
    probes = probes or [name for name in columns if name.endswith("_loss") and name.startswith("probe/")]
    probes = probes or [name for name in columns if name.endswith("_text_loss") and name.startswith("val/")] or ["val/loss"]
    masked = [f"{probes[0].removesuffix('_loss')}_masked_loss"]
    for name, style in zip([probes[0], *(masked if masked[0] in columns else []), *probes[1:]], HELD_OUT_STYLES, strict=False):
        label = f"held out, {name.removesuffix('_loss').removesuffix('/loss')}"
        axes.plot(*_points(rows, name), markersize=3.5, label=label, **style)


def _draw_baselines(axes: Axes, metrics: Mapping[str, Any]) -> None:
    names = {"unigram": "unigram", "neighbour": "neighbouring tokens", "mark": "plateau is left below"}
    found = {"unigram": metrics.get("unigram_loss"), "neighbour": metrics.get("neighbour_loss"), "mark": metrics.get("plateau_mark")}
    styles = {"unigram": "--", "neighbour": "-.", "mark": ":"}
    for name, loss in found.items():
        if loss is not None:
            axes.axhline(loss, color=GREY, linewidth=0.8, linestyle=styles[name], label=names[name])
    if step := metrics.get("plateau_left_step"):
        axes.axvline(step, color=GREY, linewidth=0.6, label=f"left by step {step:,}")


def _points(rows: list[dict[str, str]], column: str) -> tuple[list[int], list[float]]:
    """Steps and values of the rows that have one."""
    found = [(int(row["step"]), float(row[column])) for row in rows if row.get(column)]
    return [step for step, _ in found], [value for _, value in found]
