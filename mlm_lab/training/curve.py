"""The run's loss curve as a figure, beside what token frequencies alone reach."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FIGURE = "loss.svg"
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#555555"  # Okabe and Ito's, told apart in grey too by line style


def draw_loss_curve(metrics_csv: Path, summary: Mapping[str, Any], figure: Path) -> None:
    """Write an SVG: the training loss, the held-out loss of each probe, and the unigram's on the first probe, by optimiser step.

    metrics_csv: of the run folder. summary: of the run folder, for the unigram's loss. The same rows give the same bytes.
    """
    import matplotlib

    with metrics_csv.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0]) if rows else []
    probes = [name for name in columns if name.startswith("probe/") and name.endswith("_loss")]
    with matplotlib.rc_context({"svg.hashsalt": "mlm_lab", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        from matplotlib.figure import Figure

        canvas = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = canvas.subplots()
        axes.plot(*_points(rows, "train/loss"), color=BLUE, linewidth=0.8, alpha=0.7, label="training, the run's own masks")
        for name in probes:
            label = f"held out, {name.removesuffix('_loss')}"
            axes.plot(*_points(rows, name), color=ORANGE, linewidth=1.6, marker="o", markersize=3.5, label=label)
        unigram = summary.get("metrics", {}).get("unigram_loss")
        if probes and unigram is not None:
            axes.axhline(unigram, color=GREY, linewidth=1, linestyle="--", label=f"unigram on {probes[0].removesuffix('_loss')}")
        axes.set_xlabel("optimiser step")
        axes.set_ylabel("cross-entropy (nats a token)")
        axes.set_xlim(left=0)
        axes.legend(frameon=False)
        canvas.savefig(figure, format="svg", metadata={"Date": None, "Creator": None})


def _points(rows: list[dict[str, str]], column: str) -> tuple[list[int], list[float]]:
    """Steps and values of the rows that have one."""
    found = [(int(row["step"]), float(row[column])) for row in rows if row.get(column)]
    return [step for step, _ in found], [value for _, value in found]
