"""The report from top to bottom: the answer first, then the tables and figures it stands on, then what it does not say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mlm_lab.report import published_tables, run_tables, tables
from mlm_lab.report.analysis import Table
from mlm_lab.report.declaration import Declaration
from mlm_lab.report.document import Block, Bullets, Document, Figure, Heading, Paragraph
from mlm_lab.report.methods import PERCENT, methods, named_source
from mlm_lab.report.records import COMMON, TUNED
from mlm_lab.report.rows import flag
from mlm_lab.report.setting import what_was_run
from mlm_lab.report.study import Study
from mlm_lab.report.units import count, interval, percent, power_of_ten, score, unit_of

if TYPE_CHECKING:
    from mlm_lab.statistics.compare import Contrast

_TUNED = "tuned"
"""In the names of figures of the tuned table."""
_LISTED_METRICS = 4
"""Of one task, in a sentence."""
_OF_TABLE = {COMMON: "", TUNED: " with each arm at its own rate"}


def compose_document(study: Study, figures: Mapping[str, str]) -> Document:
    """The report. figures: file -> what it shows, in their order; those of the tuned table have "_tuned" in their names."""
    blocks = [
        *_answer(study),
        *_state(study),
        *what_was_run(study.tables, study.declaration),
        *_results(study, study.common, {file: text for file, text in figures.items() if _TUNED not in file}),
        *_tuned(study, {file: text for file, text in figures.items() if _TUNED in file}),
        *_plateau(study),
        *_budgets(study),
        *_published(study),
        *_not_comparable(study),
        *_pairing(study),
        *methods(study),
        *_listing(study),
        *_origin(study),
    ]
    return Document(study.declaration.question or study.declaration.name, blocks)


def _answer(study: Study) -> Iterator[Block]:
    declared = study.declaration
    yield Paragraph(f"Report of the study `{declared.name}`, declared in {named_source(declared.source)}.")
    lead = "**Primary contrast**, named before the runs"
    if declared.tune is None or None in (declared.baseline, declared.contrast):
        yield Paragraph(_verdict(study.common, declared, f"{lead}: "))
        return
    key = f"`{declared.tune.key}`"
    yield Paragraph(_verdict(study.tuned, declared, f"{lead}, with each arm at its own {key}: "))
    beside = f"Beside it, with every arm at the common {key}, a secondary contrast, corrected for the number of arms: "
    yield Paragraph(_verdict(study.common, declared, beside))


def _verdict(table: Table | None, declared: Declaration, lead: str) -> str:
    """table: None where no run of it is finished."""
    if declared.metric is None:
        return "No primary metric is declared, so the tables only describe."
    metric = f"`{declared.metric}`"
    if declared.baseline is None:
        return f"**A search**: it compares nothing. {_best(table)}"
    if declared.contrast is None:
        return (
            f"**No primary contrast** is declared or planned. The first metric is {metric}; what is tested below is corrected for the "
            "number of arms."
        )
    named = f"{lead}`{declared.contrast}` against `{declared.baseline}` by {metric}"
    if table is None:
        return f"{named}: **open**: no run at an arm's own rate is finished."
    result = table.primary
    if result is None or result.comparison is None:
        return f"{named}: **no answer yet**: {result.reason if result else 'no finished run has this metric'}."
    contrast = next((found for found in result.comparison.contrasts if found.arm == declared.contrast), None)
    if contrast is None:
        return f"{named}: **no answer yet**: the arm has no finished run with this metric."
    found = f"{named}: **{contrast.verdict}**."
    if contrast.difference is None:
        return found
    unit = unit_of(result.column.metric)
    low, high, of_all = contrast.low, contrast.high, ""
    if not contrast.primary:  # and therefore corrected
        low, high, of_all = contrast.simultaneous_low, contrast.simultaneous_high, " for all arms at once"
    return (
        f"{found} The difference is {score(contrast.difference, sign=True)}{f' {unit}' if unit else ''} over {_seeds(contrast.n)}"
        + (f", {PERCENT} interval{of_all} {interval(low, high, sign=True)}" if low is not None else "")
        + (f", p {tables.equals(contrast.p_adjusted)}" if contrast.p_adjusted is not None else "")
        + f"; {'more' if result.higher_is_better else 'less'} is better.{_own_spread(contrast)}{_could_be_seen(contrast)}"
    )


def _own_spread(contrast: Contrast) -> str:
    """Where the pool is not right about the pair."""
    if not tables.spread_is_its_own(contrast):
        return ""
    return (
        " The two arms vary more over the seeds than the others, whose spread this test takes for theirs; what to believe is what their "
        f"own differences give: {interval(contrast.low_own, contrast.high_own, sign=True)}, p {tables.equals(contrast.p_own)}."
    )


def _could_be_seen(contrast: Contrast) -> str:
    """How large a difference so many seeds show; a verdict of "not resolved" says it itself."""
    if contrast.detectable is None or contrast.verdict.startswith("not resolved"):
        return ""
    return f" With the spread seen, so many seeds show a difference of {contrast.detectable:.2g} in four studies of five."


def _best(table: Table) -> str:
    """The best point of a search."""
    primary = table.primary
    means = {} if primary is None else {arm: cell.mean for arm, cell in primary.cells.items() if cell.mean is not None}
    if primary is None or not means:
        return "No finished run has its metric."
    arm = (max if primary.higher_is_better else min)(means, key=lambda arm: means[arm])
    return (
        f"The best of its {len(means)} points by `{primary.column.label}` is `{arm}` ({score(means[arm])}, {_seeds(primary.cells[arm].n)})."
    )


def _seeds(n: int) -> str:
    return f"{n} seed{'s' * (n != 1)}"


def _state(study: Study) -> Iterator[Block]:
    yield from _stuck(study)
    yield from _failed(study)
    planned = study.declaration.planned
    for table in planned:
        grid = run_tables.grid(study, table)
        if grid is not None:
            yield Paragraph(
                f"**The grid is incomplete**{_OF_TABLE[table]}: {grid.finished} of {grid.planned} runs are finished. What follows stands "
                "on those; the column n says on how many."
            )
            yield grid.table
        else:
            yield Paragraph(f"All {len(planned[table])} runs of the grid{_OF_TABLE[table]} are finished.")
    if not planned:
        runs = sum(map(len, study.common.by_arm.values()))
        yield Paragraph(f"{runs} finished runs; no list of planned points is at hand, so nothing says how many there should be.")
    notes = [*study.warnings, *(f"Damaged: {damage.told}." for damage in study.damaged)]
    strange = [row for row in study.rows if not row.get("arm")]
    if strange:
        shown = ", ".join(f"`{row['config_hash'][:12]}`" for row in strange[:8]) + (", ..." if len(strange) > 8 else "")
        notes.append(f"In none of the study's arms, and so in no table: {shown}.")
    if notes:
        yield Bullets(notes)


def _stuck(study: Study) -> Iterator[Block]:
    """What no verdict shows: runs that learnt nothing have numbers like the others."""
    runs = {row["config_hash"]: (arm, row) for table in study.tables for arm, rows in table.by_arm.items() for row in rows}
    left: dict[str, list[bool]] = {}
    for arm, row in runs.values():
        if (known := flag(row, "left_plateau")) is not None:
            left.setdefault(arm, []).append(known)
    every = [known for of_arm in left.values() for known in of_arm]
    if not all(every):
        arms = ", ".join(f"`{arm}` ({of_arm.count(False)} of {len(of_arm)})" for arm, of_arm in left.items() if not all(of_arm))
        yield Paragraph(
            f"**{every.count(False)} of {len(every)} runs never left the unigram plateau**, and learnt how frequent each token is and "
            f"nothing else: {arms}."
        )


def _failed(study: Study) -> Iterator[Block]:
    """Runs that are missing for what they computed: what is left of their arms was selected by its outcome."""
    arms = {row["config_hash"]: arm for table in study.tables for arm, rows in table.failed.items() for row in rows}
    if arms:
        counts = ", ".join(f"`{arm}` ({list(arms.values()).count(arm)})" for arm in dict.fromkeys(arms.values()))
        failed = "1 run failed by itself" if len(arms) == 1 else f"{len(arms)} runs failed by themselves"
        yield Paragraph(
            f"**{failed}**, and no machine ended {'it' if len(arms) == 1 else 'them'}: {counts}. Such an arm is not called better or "
            "equivalent for the runs that came through."
        )


def _results(study: Study, table: Table, figures: Mapping[str, str]) -> Iterator[Block]:
    yield Heading("Results" if study.declaration.tune is None else "Results at the common rate")
    if not table.by_arm:
        yield Paragraph("No run is finished yet.")
        return
    named = [result for result in table.metrics if result.named]
    if len(named) > 1:
        yield tables.overview(named, table)
    for result in named:
        if len(result.cells) > 1 or len(table.by_arm) == 1:  # an arm alone on its scale has its number in the table above
            yield from tables.of_metric(result, study.declaration)
    if study.examples and table is study.common:
        yield tables.over_examples(study.examples, study.declaration)
    missing = [metric for metric in study.declaration.named if not any(result.column.metric == metric for result in table.metrics)]
    if missing:
        yield Paragraph("Named before the runs and measured by none of them: " + ", ".join(f"`{metric}`" for metric in missing) + ".")
    if rest := [result for result in table.metrics if not result.named]:
        yield Heading("Further metrics", 3)
        yield Paragraph("Not named before the runs. They are described, not tested: among many numbers some differ by chance.")
        yield tables.further(rest, table)
    if figures:
        yield Heading("Figures")
        yield from (Figure(file, text) for file, text in figures.items())


def _tuned(study: Study, figures: Mapping[str, str]) -> Iterator[Block]:
    tune, declared = study.tune, study.declaration.tune
    if declared is None:
        return
    yield Heading("Each arm at its own rate")
    if tune is None:
        yield Paragraph(f"The sweep file tunes `{declared.key}` for each arm; no arm has been tuned yet.")
        return
    cost = tune.get("cost") or {}
    yield Paragraph(
        f"`{declared.key}` was chosen for each arm on short runs ({percent(declared.budget_share)} of the budget, seed {declared.seed}, "
        f"by `{declared.metric}`). Those runs test nothing. They cost {count(cost.get('runs'))} runs, {count(cost.get('tokens'))} tokens, "
        f"{power_of_ten(cost.get('flops'))} FLOPs and {count(cost.get('seconds'))} seconds, which are in no budget below."
    )
    yield run_tables.tuning(tune, declared, study.declaration)
    if study.tuned is None:
        yield Paragraph("No run at an arm's own rate is finished yet.")
        return
    for result in study.tuned.metrics:
        if result.named and len(result.cells) > 1:
            yield from tables.of_metric(result, study.declaration, prefix="tuned", title="each arm at its own rate")
    yield from (Figure(file, text) for file, text in figures.items())


def _plateau(study: Study) -> Iterator[Block]:
    tables = {name: table for name, table in zip((COMMON, TUNED), study.tables, strict=False) if table.plateau}
    if not tables:
        return
    yield Heading("Who left the plateau")
    yield Paragraph(
        "A small encoder sits on the loss that token frequencies alone give, for a while or for good. How many runs of an arm left it "
        "is an endpoint of its own."
    )
    for name, table in tables.items():
        yield run_tables.plateau(table, _OF_TABLE[name])


def _budgets(study: Study) -> Iterator[Block]:
    if not study.common.budgets:
        return
    yield Heading("What the runs took")
    yield run_tables.budgets(study.common)
    overlap = run_tables.overlap(study.common)
    if overlap is not None:
        yield overlap
    if study.tuned is not None:
        yield run_tables.budgets(study.tuned, prefix="tuned", title="each arm at its own rate")


def _published(study: Study) -> Iterator[Block]:
    if not study.published:
        return
    yield Heading("Beside published results")
    yield Paragraph(
        "Published numbers come from other models, corpora and budgets, so only directions are compared: a difference in one score, on one "
        "split, under one protocol, and larger than two runs of one recipe differ by."
        + " Ours are those with each arm at its own rate."
        * (study.tuned is not None)
    )
    for published in study.published:
        yield published_tables.facts(published)
        comparison = published_tables.contrasts(published)
        if comparison is not None:
            yield comparison


def _not_comparable(study: Study) -> Iterator[Block]:
    items = [
        f"`{result.column.label}`: {result.column.reason or result.reason}."
        for result in study.common.metrics
        if result.reason is not None and (result.named or result.column.reason is not None) and len(result.cells) > 1
    ]
    items += _split(study.common)
    items += published_tables.reasons(study.published)
    if items:
        yield Heading("What is not comparable")
        yield Bullets(items)


def _split(table: Table) -> Iterator[str]:
    """A line for each task whose arms are on several scales, however many metrics it has."""
    of_task: dict[str, list[str]] = {}
    for metric in sorted({result.column.metric for result in table.metrics if result.column.label != result.column.metric}):
        of_task.setdefault(metric.partition("/")[0], []).append(f"`{metric}`")
    why = "in several columns, the arms not being on one scale (another kind of loss, or another vocabulary)"
    for task, names in of_task.items():
        if len(names) <= _LISTED_METRICS:
            yield f"{', '.join(names)}: {why}."
        else:
            yield f"{names[0]} and {len(names) - 1} further scores of `{task}`: {why}."


def _pairing(study: Study) -> Iterator[Block]:
    table = run_tables.pairing(study)
    if table is None:
        return
    yield Heading("What was paired")
    primary = study.answering.primary
    pool = primary.comparison.pool if primary and primary.comparison else None
    gain = f" Without pairing, {pool.pairing_gain:.1f} times as many seeds would say as much." if pool and pool.pairing_gain else ""
    yield Paragraph(
        "Runs of two arms with one seed share what can be shared: the initial weights where the shapes are equal, the order of the text, "
        f"and the draws of the masks (nested where the ratios differ). What they share drops out of the difference.{gain}"
    )
    yield table


def _listing(study: Study) -> Iterator[Block]:
    tables_of_runs = run_tables.failures(study), run_tables.flagged(study), run_tables.undefined(study.tables)
    found: Sequence = [table for table in tables_of_runs if table is not None]
    yield Heading("Failed, missing and flagged runs")
    if not found:
        planned = "every planned run is finished, " if study.declaration.planned else ""
        looked = "none stayed on the plateau, " if any(table.plateau for table in study.tables) else ""
        yield Paragraph(f"None: {planned}{looked}no fine-tuning collapsed or failed.")
    yield from found


def _origin(study: Study) -> Iterator[Block]:
    yield Heading("Where the numbers are")
    yield Paragraph(
        "`results.csv` has a row for each run with its config and every number, `curves.csv` the validations, `tables.tex` these tables "
        f"for a paper. `{study.declaration.command} --verify` makes this text again from them and from the run "
        "folders at hand, and says what differs."
    )
