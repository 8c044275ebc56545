"""The report's figures as SVG: the same rows give the same bytes, and every line is told apart in grey too.

score.svg         the primary metric against the factor: every run, the mean, its interval
scores.svg        the other named metrics likewise, small
curves.svg        held-out loss over tokens, an arm a colour and line style, a seed a thin line
flops.svg         the primary metric against what the runs cost
differences.svg   difference from the baseline for each metric and arm, as a heat map
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.atomic import write_text
from mlm_lab.report.analysis import MetricResult, Table
from mlm_lab.report.declaration import Declaration
from mlm_lab.report.outcomes import seed_of
from mlm_lab.report.rows import CONFIG, Row, number
from mlm_lab.report.units import scale_of, unit_of
from mlm_lab.statistics.verdict import BETTER, WORSE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from mlm_lab.statistics.compare import Contrast

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8c6d31")
"""Okabe and Ito's, the pale yellow left out, and a brown."""
STYLES = (
    "-",
    (0, (5, 2)),
    (0, (6, 2, 1, 2)),
    (0, (1.2, 1.2)),
    (0, (9, 2)),
    (0, (6, 1.5, 1, 1.5, 1, 1.5)),
    (0, (3, 1.2)),
    (0, (9, 2, 3, 2)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
GREY, PALE = "#555555", "#e4e4e4"
_ALIKE = 0.02
"""Share of the height of a figure below which floors are drawn as one."""
PANELS = 9
"""Most panels of scores.svg."""
_TOO_MANY = 24
"""Arms from which a figure of lines says nothing any more."""
_SCORE = (
    "Mean and 95 % interval over seeds; grey: the runs, a line for each seed. An arrowhead: the interval goes on beyond the frame; a "
    "cross: a flagged run."
)
_DIFFERENCES = (
    "Green and an arrow up: better; brown and an arrow down: worse. The shade is the difference over the half width of its simultaneous "
    "interval; a frame: the verdict is better or worse. Grey and hatched: no verdict stands, since runs of the arm or of the baseline "
    "stayed on the plateau, collapsed or have no score."
)


@dataclass(frozen=True)
class Drawing:
    """A figure that the runs allow, before it is drawn."""

    file: str
    caption: str
    size: tuple[float, float]
    """Inches."""
    paint: Callable[[Canvas], None]


def plan(table: Table, declaration: Declaration, curves: Mapping[str, Sequence[Row]], suffix: str = "") -> list[Drawing]:
    """The figures that these runs allow. suffix: at the end of their names, for a second table."""
    drawings: list[Drawing] = []

    def add(name: str, caption: str, size: tuple[float, float], paint: Callable[..., None], *given: object) -> None:
        drawings.append(Drawing(f"{name}{suffix}.svg", caption, size, partial(_paint, paint, given)))

    primary, named = table.primary, [result for result in table.metrics if result.named and not result.primary]
    if primary is not None and primary.cells:
        add("score", f"{primary.column.label} by arm. {_SCORE}", (_width(primary), 3.8), _score, primary, declaration)
    if others := [result for result in named if len(result.cells) > 1][:PANELS]:
        size = (3.7 * min(3, len(others)), 3.1 * -(-len(others) // 3))
        add("scores", "The other metrics that were named before the runs, likewise.", size, _scores, others, declaration)
    if (column := _curve_column(table, declaration, curves)) is not None and len(table.by_arm) <= _TOO_MANY:
        add("curves", f"{column} over the run; a line for each seed.", (7.4, 4.0), _curves, column, table, curves)
    if primary is not None and any(number(row, "flops") is not None for arm in primary.cells for row in table.by_arm[arm]):
        add("flops", f"{primary.column.label} against what each run cost; large: the mean of the arm.", (6.4, 3.8), _flops, primary, table)
    arms = [arm for arm in table.by_arm if arm != declaration.baseline]
    if (compared := [result for result in table.metrics if result.comparison is not None]) and arms:
        caption = f"Each arm minus the baseline, {declaration.baseline}. {_DIFFERENCES}"
        add("differences", caption, (2.6 + 1.25 * len(arms), 1.3 + 0.42 * len(compared)), _heat_map, compared, arms)
    return drawings


def _paint(paint: Callable[..., None], given: tuple, canvas: Canvas) -> None:
    paint(canvas, *given)


def draw(drawing: Drawing, folder: Path) -> str:
    """Draw it into the folder, without a date and with ids that follow from what is drawn. Returns the SVG's text."""
    import matplotlib

    settings = {
        "svg.hashsalt": "mlm_lab",
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 9,
        "axes.formatter.useoffset": False,
    }
    with matplotlib.rc_context(settings):
        from matplotlib.figure import Figure

        canvas = Figure(figsize=drawing.size, layout="constrained")
        drawing.paint(canvas)
        text = io.StringIO()
        canvas.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    write_text(folder / drawing.file, text.getvalue())
    return text.getvalue()


def _width(result: MetricResult) -> float:
    return min(11.0, max(5.6, 1.0 + 0.95 * len(result.cells)))


def axis_values(arms: Sequence[str], declaration: Declaration) -> list[float] | None:
    """Where the arms stand on a numeric axis: the one factor's values, if they are numbers; None where the arms are names."""
    values = []
    for arm in arms:
        of_arm = list(declaration.arms.get(arm, {}).values())
        if len(of_arm) != 1 or isinstance(of_arm[0], bool) or not isinstance(of_arm[0], int | float):
            return None
        values.append(float(of_arm[0]))
    return values if len(set(values)) == len(values) else None


def _score(canvas: Canvas, result: MetricResult, declaration: Declaration) -> None:
    _panel(canvas.subplots(), result, declaration)


def _scores(canvas: Canvas, results: Sequence[MetricResult], declaration: Declaration) -> None:
    columns = min(3, len(results))
    panels = canvas.subplots(-(-len(results) // columns), columns, squeeze=False).ravel()
    for panel, result in zip(panels, results, strict=False):
        _panel(panel, result, declaration)
    for panel in panels[len(results) :]:
        panel.set_axis_off()


def _panel(axes: Axes, result: MetricResult, declaration: Declaration) -> None:
    """Mean and interval of each arm, a line through the means where the factor is a number, the floor; each seed as a thin grey line."""
    arms = list(result.cells)
    numeric = axis_values(arms, declaration)
    places = numeric or [float(place) for place in range(len(arms))]
    for seed in dict.fromkeys(seed for arm in arms for seed in result.scores[arm]):
        of_seed = [result.scores[arm].get(seed) for arm in arms]
        heights = [math.nan if value is None else value for value in of_seed]
        axes.plot(
            places,
            heights,
            color=GREY,
            linewidth=0.6 if result.reason is None else 0,
            alpha=0.5,
            marker="o",
            markersize=3,
            markeredgewidth=0,
        )
    for arm, place in zip(arms, places, strict=True):
        flagged = [result.scores[arm][seed] for seed in flagged_seeds(result, arm)]
        axes.plot([place] * len(flagged), flagged, linestyle="", marker="x", markersize=6, color=COLOURS[1])
    for arm, place in zip(arms, places, strict=True):
        cell = result.cells[arm]
        if cell.low is not None:
            axes.errorbar(place, cell.mean, [[cell.mean - cell.low], [cell.high - cell.mean]], color=COLOURS[0], capsize=4, linewidth=1.4)
        if cell.mean is not None:
            axes.plot(place, cell.mean, linestyle="", marker="D", markersize=5.5, color=COLOURS[0])
    if numeric:
        means = [result.cells[arm].mean for arm in arms]
        if result.reason is None:  # a line asks to be read as a course
            axes.plot(places, [math.nan if mean is None else mean for mean in means], color=COLOURS[0], linewidth=1.6)
        axes.set_xlabel(next(iter(declaration.arms[arms[0]])))
        _numeric_axis(axes, places)
    else:
        _name_axis(axes, arms, room=13 if len(arms) < 6 else 9)
    floors = _draw_floors(axes, result, dict(zip(arms, places, strict=True)))
    _label(axes, result)
    axes.margins(x=0.08)
    _frame_runs(axes, result, floors)
    _mark_beyond(axes, result, dict(zip(arms, places, strict=True)))


def _draw_floors(axes: Axes, result: MetricResult, places: Mapping[str, float]) -> list[float]:
    """One line where the arms' random starts score alike, as far as can be seen, else one at each arm. Returns the floors."""
    floors = {place: result.floors[arm][0] for arm, place in places.items() if arm in result.floors}
    values = list(floors.values())
    if not values:
        return values
    seen = [*values, *(mean for arm in places if (mean := result.cells[arm].mean) is not None)]
    look = {"color": COLOURS[1], "linewidth": 1, "linestyle": "--"}
    if max(values) - min(values) <= _ALIKE * (max(seen) - min(seen)):
        last = sum(values) / len(values)
        axes.axhline(last, **look)
    else:
        last, every = values[-1], sorted(places.values())
        half = 0.4 * min(right - left for left, right in pairwise(every))
        axes.hlines(values, [place - half for place in floors], [place + half for place in floors], **look)
    where = {"xycoords": ("axes fraction", "data"), "xytext": (4, 0), "textcoords": "offset points"}
    axes.annotate("random\nstart", (1, last), **where, ha="left", va="center", fontsize=8, color=COLOURS[1])
    return values


def flagged_seeds(result: MetricResult, arm: str) -> list[int]:
    """The runs of the arm that the second table leaves out."""
    kept = result.scores if result.escaped is None else result.escaped.scores
    return [seed for seed in result.scores[arm] if seed not in kept.get(arm, {})]


def _frame_runs(axes: Axes, result: MetricResult, further: Sequence[float]) -> None:
    """Show every run, with some room; the interval of two or three runs may leave the frame, and would press the rest together."""
    shown = [value for runs in result.scores.values() for value in runs.values() if value is not None] + list(further)
    if shown and max(shown) > min(shown):
        room = 0.35 * (max(shown) - min(shown))
        axes.set_ylim(max(axes.get_ylim()[0], min(shown) - room), min(axes.get_ylim()[1], max(shown) + room))


def _mark_beyond(axes: Axes, result: MetricResult, places: Mapping[str, float]) -> None:
    """An arrowhead where an interval leaves the frame: the line alone would look like an axis."""
    low, high = axes.get_ylim()
    for arm, place in places.items():
        cell = result.cells[arm]
        if cell.low is not None:
            for edge, marker in [(low, "v")] * bool(cell.low < low) + [(high, "^")] * bool(cell.high > high):
                axes.plot(place, edge, linestyle="", marker=marker, markersize=7, color=COLOURS[0], clip_on=False, zorder=5)


def _numeric_axis(axes: Axes, places: Sequence[float]) -> None:
    """A tick at each value, on a logarithmic axis where they span much."""
    if min(places) > 0 and max(places) / min(places) >= 20:
        axes.set_xscale("log")
        axes.minorticks_off()
    if len(places) <= 10:
        axes.set_xticks(places, [f"{place:g}" for place in places])


def _name_axis(axes: Axes, arms: Sequence[str], room: int) -> None:
    """The arms' names, slanted where one is longer than its room (letters)."""
    axes.set_xticks(range(len(arms)), arms)
    if max(map(len, arms)) > room:
        axes.tick_params(axis="x", labelrotation=35)
        for tick in axes.get_xticklabels():
            tick.set_horizontalalignment("right")
            tick.set_rotation_mode("anchor")


def _label(axes: Axes, result: MetricResult) -> None:
    """The metric above, the unit and which way is better at the side."""
    better = f"{'more' if result.higher_is_better else 'less'} is better"
    axes.set_title(result.column.label, loc="left")
    axes.set_ylabel(", ".join(filter(None, [unit_of(result.column.metric), better if result.reason is None else "not comparable"])))


def _curves(canvas: Canvas, column: str, table: Table, curves: Mapping[str, Sequence[Row]]) -> None:
    axes = canvas.subplots()
    spent, spent_in_words = _matched_on(table)
    for place, (arm, rows) in enumerate(table.by_arm.items()):
        look = {"color": COLOURS[place % len(COLOURS)], "linestyle": STYLES[place % len(STYLES)]}
        label: str | None = arm
        for row in rows:
            points = [(number(line, spent), number(line, column)) for line in curves.get(row["config_hash"], [])]
            points = [(x, y) for x, y in points if x is not None and y is not None]
            if points:
                axes.plot(*zip(*points, strict=True), linewidth=1.1, label=label, **look)
                label = None
    unigram = [value for rows in table.by_arm.values() for row in rows if (value := number(row, "unigram_loss")) is not None]
    if unigram and column.startswith("probe/") and max(unigram) - min(unigram) < 1e-9:
        axes.axhline(unigram[0], color=GREY, linewidth=1, linestyle=(0, (1, 1)), label="token frequencies alone")
    axes.set_title(column, loc="left")
    axes.set_xlabel(spent_in_words)
    axes.set_ylabel(unit_of(column))
    axes.xaxis.set_major_formatter(_counts)
    axes.set_xlim(left=0)
    canvas.legend(*axes.get_legend_handles_labels(), frameon=False, loc="outside right upper", handlelength=3.2)


def _curve_column(table: Table, declaration: Declaration, curves: Mapping[str, Sequence[Row]]) -> str | None:
    """What the curves show: the primary metric where it is measured on the way, else the first named probe, the probe that most runs have,
    val/loss."""
    hashes = [row["config_hash"] for rows in table.by_arm.values() for row in rows]
    runs = Counter(name for key in hashes for line in curves.get(key, [])[-1:] for name in line)
    present = sorted(runs, key=lambda name: (-runs[name], len(name), name))
    losses = [name for name in present if name.startswith("probe/") and name.endswith("_loss")]
    wanted = [declaration.metric, *(name for name in declaration.named if name in losses), *losses, "val/loss"]
    return next((name for name in wanted if name in present), None)


def _matched_on(table: Table) -> tuple[str, str]:
    """Column of the curves and its name: seconds or FLOPs where every run had its budget in them, else corpus tokens."""
    rows = [row for of_arm in table.by_arm.values() for row in of_arm]
    for budget, matched in (("hours", ("seconds", "seconds of training")), ("flops", ("flops", "FLOPs"))):
        if all(number(row, f"{CONFIG}budget.{budget}") is not None for row in rows):
            return matched
    return "tokens", "corpus tokens"


def _counts(value: float, _: int) -> str:
    for size, sign in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {sign}"
    return f"{value:g}"


def _flops(canvas: Canvas, result: MetricResult, table: Table) -> None:
    axes = canvas.subplots()
    for place, arm in enumerate(result.cells):
        look = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)], "linestyle": ""}
        points = [(number(row, "flops"), result.scores[arm].get(seed_of(row))) for row in table.by_arm[arm]]
        points = [(x, y) for x, y in points if x is not None and y is not None]
        if points:
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, markersize=4, alpha=0.45, markeredgewidth=0, **look)
            axes.plot(sum(xs) / len(xs), sum(ys) / len(ys), markersize=8, markeredgecolor="white", label=arm, **look)
    axes.set_xlabel("FLOPs of a run")
    axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 0), useMathText=True)
    _label(axes, result)
    axes.margins(0.1)
    canvas.legend(*axes.get_legend_handles_labels(), frameon=False, loc="outside right upper")


def _heat_map(canvas: Canvas, results: Sequence[MetricResult], arms: Sequence[str]) -> None:
    """A row for each metric, a column for each arm; the number stands in its field."""
    axes = canvas.subplots()
    shades = [[_shade(result, arm) for arm in arms] for result in results]
    edges = [[place - 0.5 for place in range(count + 1)] for count in (len(arms), len(results))]
    axes.pcolormesh(*edges, shades, cmap="BrBG", vmin=-2, vmax=2, edgecolor="white", linewidth=2)
    axes.invert_yaxis()
    for y, result in enumerate(results):
        for x, arm in enumerate(arms):
            contrast = next((found for found in result.comparison.contrasts if found.arm == arm), None)
            if contrast is None or contrast.difference is None:
                axes.text(x, y, "-", ha="center", va="center", color=GREY)
                continue
            shown = f"{contrast.difference * scale_of(result.column.metric):+.2f}"
            if _is_barred(result, contrast):
                axes.add_patch(_hatched(x, y))
                axes.text(x, y, shown, ha="center", va="center", backgroundcolor=PALE)
                continue
            arrow = "▲" if (contrast.difference > 0) == result.higher_is_better else "▼"
            axes.text(x, y, f"{shown} {arrow}", ha="center", va="center")
            if contrast.verdict in (BETTER, WORSE):
                axes.add_patch(_frame(x, y))
    _name_axis(axes, arms, room=14)
    axes.tick_params(length=0)
    axes.set_yticks(range(len(results)), [f"{result.column.label} ({_points(result)})" for result in results])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _frame(x: int, y: int) -> object:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, fill=False, linewidth=1.4, edgecolor="black")


def _hatched(x: int, y: int) -> object:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=PALE, hatch="///", linewidth=2, edgecolor="white", zorder=0.5)


def _is_barred(result: MetricResult, contrast: Contrast) -> bool:
    """Whether a colour would say what the verdict may not: the arm's spread, or the baseline's, is not that between seeds."""
    excluded = contrast.excluded is not None or result.comparison.baseline in result.comparison.excluded
    return excluded and contrast.verdict not in (BETTER, WORSE)


def _points(result: MetricResult) -> str:
    return "points" if scale_of(result.column.metric) == 100 else unit_of(result.column.metric) or "own unit"


def _shade(result: MetricResult, arm: str) -> float:
    """Difference over the half width of its simultaneous interval, better being positive; within what the colours show. nan: no colour."""
    contrast = next((found for found in result.comparison.contrasts if found.arm == arm), None)
    if contrast is not None and _is_barred(result, contrast):
        return math.nan
    if contrast is None or contrast.difference is None or contrast.simultaneous_high is None:
        return 0.0
    half = contrast.simultaneous_high - contrast.difference
    ratio = contrast.difference / half if half > 0 else 0.0
    return max(-1.0, min(1.0, ratio if result.higher_is_better else -ratio))
