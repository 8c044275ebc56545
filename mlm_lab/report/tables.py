"""The tables of metrics: rows of text from the analysis, each with a note that says how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mlm_lab.report.analysis import LEVEL, MetricResult
from mlm_lab.report.analysis import Table as Analysed
from mlm_lab.report.declaration import Declaration
from mlm_lab.report.document import Block, Heading, Paragraph, Table
from mlm_lab.report.examples import OverExamples
from mlm_lab.report.units import count, interval, p_value, percent, score, unit_of

if TYPE_CHECKING:
    from mlm_lab.statistics.compare import Comparison, Contrast

_MISSING = "not run"
_MEBI = 2**20
_FLOOR = "Floor: the same encoder from random weights, mean ± standard deviation over its initialisations."


def overview(results: Sequence[MetricResult], table: Analysed) -> Table:
    """Arms by the named metrics."""
    note = (
        "Mean ± standard deviation over pretraining seeds, with their number. One column is one scale; a dash: the arm has no such score; "
        "undefined: it was evaluated, and no number came of it."
    )
    return _by_arm("overview", "Every metric that was named before the runs", results, table, note)


def further(results: Sequence[MetricResult], table: Analysed) -> Table:
    """The metrics that nobody named; the arms side by side where there are few."""
    note = "Mean ± standard deviation over pretraining seeds, with their number."
    if len(table.by_arm) > max(4, len(results)):
        return _by_arm("further", "Further metrics", results, table, note)
    rows = [[f"`{result.column.label}`", *(_short(result, arm) for arm in table.by_arm)] for result in results]
    columns = ["metric", *table.by_arm]
    if any(result.floors for result in results):
        columns.append("floor")
        note += f" {_FLOOR}"
        rows = [[*row, _floors(result)] for row, result in zip(rows, results, strict=True)]
    return Table("further", "Further metrics", columns, rows, note)


def _floors(result: MetricResult) -> str:
    """One figure where all arms have the same encoder at the start, which those of most studies have."""
    shown = dict.fromkeys(_floor(floor) for floor in result.floors.values())
    return " / ".join(shown) or "-"


def _by_arm(name: str, caption: str, results: Sequence[MetricResult], table: Analysed, note: str) -> Table:
    rows = [[arm, *(_short(result, arm) for result in results)] for arm in table.by_arm]
    return Table(name, caption, ["arm", *(f"`{result.column.label}`" for result in results)], rows, note)


def _short(result: MetricResult, arm: str) -> str:
    cell = result.cells.get(arm)
    if cell is None:
        return "-"
    spread = f" ± {score(cell.std)}" if cell.std is not None else ""
    return f"{score(cell.mean)}{spread} ({cell.n})" if cell.mean is not None else f"undefined ({cell.n})"


def of_metric(result: MetricResult, declaration: Declaration, prefix: str = "", title: str = "") -> Iterator[Block]:
    """A metric's own section: the table over every run, that over the runs not flagged, the trend."""
    label, name = result.column.label, slug(f"{prefix} {result.column.label}")
    yield Heading(f"`{label}`" + (f", {title}" if title else "") + (" (primary)" if result.answers else ""), 3)
    if result.reason is not None:
        yield Paragraph(f"Arms are **not compared**: {result.reason}.")
    yield _main_table(result, declaration, name, f"{label}, every run" + (f", {title}" if title else ""))
    if result.comparison is not None and result.comparison.trend is not None:
        yield Paragraph(_trend(result.comparison))
    if result.escaped is not None:
        yield _escaped_table(result, name)


def _main_table(result: MetricResult, declaration: Declaration, name: str, caption: str) -> Table:
    contrasts = {contrast.arm: contrast for contrast in result.comparison.contrasts} if result.comparison else {}
    columns = ["arm", "n", "mean", "std", "median", "95 % interval"]
    columns += ["floor"] if result.floors else []
    columns += ["difference", "simultaneous interval", "p", "verdict"] if contrasts else []
    rows = []
    for arm, cell in result.cells.items():
        row = [
            mark_arm(arm, declaration),
            str(cell.n),
            score(cell.mean),
            score(cell.std),
            score(cell.median),
            interval(cell.low, cell.high),
        ]
        if result.floors:
            row.append(_floor(result.floors.get(arm)))
        if contrast := contrasts.get(arm):
            p = _p(contrast)
            simultaneous = interval(contrast.simultaneous_low, contrast.simultaneous_high, sign=True)
            row += [score(contrast.difference, sign=True), simultaneous, p, contrast.verdict + (" (primary)" if contrast.primary else "")]
        elif contrasts:
            row += ["-", "-", "-", "baseline"]
        rows.append(row)
    for arm in contrasts:
        if arm not in result.cells:
            rows.append([mark_arm(arm, declaration), "0", *["-"] * (len(columns) - 3), contrasts[arm].verdict])
    return Table(name, caption, columns, rows, _note(result, declaration))


def _p(contrast: Contrast) -> str:
    """Of the pooled test; beside it that of equivalence where it is shown, the permutation's where the seeds can reach the level, and the
    pair's own where the pool is not right about its spread."""
    shown = [p_value(contrast.p_adjusted)]
    if _is_equivalent(contrast):
        shown.append(f"(equivalence {p_value(contrast.equivalence_p)})")
    if contrast.p_permutation is not None:
        shown.append(f"(permutation {p_value(contrast.p_permutation)})")
    if spread_is_its_own(contrast):
        shown.append(f"(own spread {p_value(contrast.p_own)})")
    return " ".join(shown)


def _is_equivalent(contrast: Contrast) -> bool:
    return contrast.equivalence_p is not None and contrast.verdict.startswith("equivalent")


def spread_is_its_own(contrast: Contrast) -> bool:
    """Whether the pair varies so much more than the rest of its pool that the pooled test says too much."""
    return contrast.p_own is not None and contrast.spread_p is not None and contrast.spread_p < 1 - LEVEL


def _note(result: MetricResult, declaration: Declaration) -> str:
    unit = unit_of(result.column.metric)
    parts = [f"{unit[0].upper()}{unit[1:]}; {_better(result)}." if unit else f"{_better(result)[0].upper()}{_better(result)[1:]}."]
    comparison = result.comparison
    if comparison is not None:
        primary = any(contrast.primary for contrast in comparison.contrasts)
        own = ", but the primary contrast's own, whose interval for itself stands at the top" * primary
        bold = "the baseline" if declaration.contrast is None else "the arms of the primary contrast"
        parts.append(f"Bold: {bold}. Difference: arm minus baseline; p: Holm's over the arms{own}.")
        if comparison.pool is not None:
            parts.append(
                f"Spread of one run about its arm and seed: {score(comparison.pool.std)}, from {len(comparison.pool.arms)} arms "
                f"({comparison.pool.degrees_of_freedom} degrees of freedom)."
            )
        if _lacks_seeds(result, declaration):
            parts.append(
                "Arms have not the same seeds: a difference is adjusted for the seeds that one lacks by the other arms' runs with "
                "them, and is not that of the two means."
            )
        if any(_is_equivalent(contrast) for contrast in comparison.contrasts):
            parts.append("Equivalence: of two one-sided tests within the margin, Holm's over the arms likewise.")
        if any(contrast.p_permutation is not None for contrast in comparison.contrasts):
            parts.append("Permutation: of the pair's seeds alone, uncorrected.")
        if any(spread_is_its_own(contrast) for contrast in comparison.contrasts):
            parts.append(
                "Own spread: by the pair's own differences (paired t), uncorrected, where they vary more than the pool's other arms "
                f"(F test at {100 * (1 - LEVEL):.0f} %): the one to believe there."
            )
        if comparison.excluded:
            parts.append("Out of the pool: " + "; ".join(f"`{arm}` ({reason})" for arm, reason in comparison.excluded.items()) + ".")
    if any(part.k for part in result.collapsed.values()):
        parts.append(
            "Runs with a collapsed fine-tuning: "
            + ", ".join(f"`{arm}` {part.k} of {part.n}" for arm, part in result.collapsed.items() if part.k)
            + "."
        )
    if result.floors:
        parts.append(_FLOOR)
    return " ".join(parts)


def _lacks_seeds(result: MetricResult, declaration: Declaration) -> bool:
    """Whether arms of the pool have other seeds than each other, so that the differences are adjusted: from three arms on."""
    pool = result.comparison.pool if result.comparison else None
    arms = pool.arms if pool is not None else ()
    seeds = {frozenset(result.scores[arm]).difference(declaration.pilot_seeds) for arm in arms if arm in result.scores}
    return len(arms) > 2 and len(seeds) > 1


def _better(result: MetricResult) -> str:
    return "more is better" if result.higher_is_better else "less is better"


def mark_arm(arm: str, declaration: Declaration) -> str:
    """The two arms of the primary contrast stand out."""
    return f"**{arm}**" if arm in (declaration.baseline, declaration.contrast) else arm


def _floor(floor: tuple[float, float | None] | None) -> str:
    if floor is None:
        return "-"
    return score(floor[0]) + (f" ± {score(floor[1])}" if floor[1] is not None else "")


def _trend(comparison: Comparison) -> str:
    trend = comparison.trend
    if trend is None or trend.p is None:
        return f"Trend over the arms as ordered: not tested ({trend.reason if trend else 'no order'})."
    moved = {"rising": "the score rises", "falling": "the score falls", "none": "no direction"}[trend.direction]
    told = moved if trend.p < 1 - LEVEL else "none is told"
    return f"Trend over the arms as ordered (Page): {told}, p {equals(trend.p)}, over {trend.n} seeds and {trend.arms} arms."


def equals(p: float) -> str:
    """What follows the letter p in a sentence."""
    return p_value(p) if p < 0.001 else f"= {p_value(p)}"


def _escaped_table(result: MetricResult, name: str) -> Table:
    clean = result.escaped
    assert clean is not None
    contrasts = {contrast.arm: contrast for contrast in clean.comparison.contrasts} if clean.comparison else {}
    rows = []
    for arm, every in result.cells.items():
        cell, contrast = clean.cells.get(arm), contrasts.get(arm)
        kept = f"{cell.n if cell else 0} of {every.n}"
        numbers = [score(cell.mean), score(cell.std), score(cell.median), interval(cell.low, cell.high)] if cell else ["-"] * 4
        rows.append([arm, kept, *numbers, *([score(contrast.difference, sign=True) if contrast else "-"] if contrasts else [])])
    note = (
        "Without the runs that stayed on the plateau or whose fine-tuning collapsed or failed. That is a selection on the outcome: it "
        "describes the runs that came through, and tests nothing."
    )
    columns = ["arm", "runs kept", "mean", "std", "median", "95 % interval", *(["difference"] if contrasts else [])]
    return Table(f"{name}-escaped", f"{result.column.label}, only the runs that are not flagged", columns, rows, note)


def over_examples(found: Sequence[OverExamples], declaration: Declaration) -> Table:
    """The contrasts from 10 seeds on, with an interval for further examples too."""
    rows = []
    for contrast in found:
        numbers = contrast.numbers
        ends = interval(numbers["low"], numbers["high"], sign=True)
        share = percent(numbers["seed_share"])
        sizes = [count(numbers["seeds"]), count(numbers["examples"])]
        rows.append(
            [mark_arm(contrast.arm, declaration), f"`{contrast.metric}`", score(numbers["difference"], sign=True), ends, share, *sizes]
        )
    columns = ["arm", "metric", "difference", "95 % interval", "share of seeds", "seeds", "examples"]
    note = (
        "Seeds and examples (sentences, for entities) drawn anew together: the interval holds for other examples of the kind too. Share of "
        "seeds: of the variance, what is there with the examples as they are."
    )
    return Table("examples", "Over seeds and examples", columns, rows, note)


def slug(text: str) -> str:
    """A table's name from its title."""
    return "-".join("".join(sign if sign.isalnum() else " " for sign in text.lower()).split())
