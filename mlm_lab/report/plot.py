"""Curves of run folders for a notebook: one call, a line for each run, named by what its config has and the others have not.

from mlm_lab import plot
plot("runs", metric="probe/mlm_15_loss")      the last line of a cell shows it; .figure is matplotlib's, .save(path) writes it
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.errors import UserError
from mlm_lab.report.figures import COLOURS, STYLES
from mlm_lab.report.gather import HASHED
from mlm_lab.report.rows import config_text, flatten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

X_LABELS = {"step": "optimiser step", "seconds": "seconds of training"}
LONGEST_LABEL = 60


@dataclass(frozen=True)
class Plot:
    """A figure that a notebook shows."""

    figure: Figure

    def _repr_svg_(self) -> str:
        text = io.StringIO()
        self.figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        return text.getvalue()

    def save(self, path: Path | str) -> None:
        """Write it in the format of the name's ending (svg, pdf, png)."""
        self.figure.savefig(path)


def plot(*folders: Path | str, metric: str = "val/loss", against: str = "step") -> Plot:
    """Draw a column of metrics.csv, a line for each run.

    folders: run folders, or parents of run folders. metric: a column of metrics.csv (train/loss, val/loss, probe/mlm_15_loss, in nats a
    token; ..._accuracy, a share). against: the column below it.

    Raises UserError: no run there, or none that has both columns, naming those that there are.
    """
    from matplotlib.figure import Figure

    runs = [run for folder in folders for run in _runs(Path(folder).expanduser())]
    if not runs:
        raise UserError("there is no run folder", given=", ".join(map(str, folders)), allowed="run folders, or parents of run folders")
    curves = {run: _curve(run, metric, against) for run in runs}
    if not any(curves.values()):
        columns = dict.fromkeys(column for run in runs for column in _header(run))
        raise UserError(f"no run has {metric} and {against}", given=", ".join(map(str, runs[:4])), allowed=", ".join(columns))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for number, (run, label) in enumerate(zip(runs, _labels(runs), strict=True)):
        if curves[run]:
            style = {"color": COLOURS[number % len(COLOURS)], "linestyle": STYLES[number % len(STYLES)]}
            axes.plot(*zip(*curves[run], strict=True), label=label, **style)
    axes.set_xlabel(X_LABELS.get(against, against))
    axes.set_ylabel(f"{metric} (nats)" if metric.endswith("loss") else metric)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return Plot(figure)


def _runs(folder: Path) -> list[Path]:
    if (folder / "metrics.csv").is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/metrics.csv"))


def _header(run: Path) -> Sequence[str]:
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return next(csv.reader(file), [])


def _curve(run: Path, metric: str, against: str) -> list[tuple[float, float]]:
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return [(float(row[against]), float(row[metric])) for row in csv.DictReader(file) if row.get(metric) and row.get(against)]


def _labels(runs: Sequence[Path]) -> list[str]:
    """What tells the runs apart: the keys of their configs that are not alike; their names where there is nothing."""
    configs = [_config(run) for run in runs]
    keys = dict.fromkeys(key for config in configs for key in config)
    different = [key for key in keys if len({config.get(key) for config in configs}) > 1]
    texts = [" ".join(_word(key, config.get(key, "-")) for key in different)[:LONGEST_LABEL] for config in configs]
    return [text or run.name for text, run in zip(texts, runs, strict=True)]


def _word(key: str, value: str) -> str:
    """objective.mask_ratio 0.4 -> mask_ratio=0.4; objective._target_ mlm_lab.objectives.rtd.RTD -> objective=RTD."""
    above, _, name = key.rpartition(".")
    return f"{above.rpartition('.')[2]}={value.rpartition('.')[2]}" if name == "_target_" else f"{name}={value}"


def _config(run: Path) -> Mapping[str, str]:
    import yaml

    values = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    parts = {name: values[name] for name in (*HASHED, "seed") if name in values and name != "seeds"}
    return {key: config_text(value) for key, value in flatten(parts)}
