"""Tables about the runs themselves: which are there, what they took, what they share, which failed or are flagged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlm_lab.report import pairs
from mlm_lab.report.analysis import Table as Analysed
from mlm_lab.report.declaration import Declaration
from mlm_lab.report.document import Table
from mlm_lab.report.gather import FINISHED, OVERLAP
from mlm_lab.report.outcomes import failed_cells, is_flagged
from mlm_lab.report.placing import in_table
from mlm_lab.report.records import COMMON, TUNED
from mlm_lab.report.rows import CONFIG, Row, flag, number
from mlm_lab.report.study import Study
from mlm_lab.report.tables import mark_arm, slug
from mlm_lab.report.units import count, percent, power_of_ten, score
from mlm_lab.statistics.proportions import Proportion

if TYPE_CHECKING:
    from mlm_lab.sweep.sweep_file import Tune

_MISSING = "not run"
_RATE = {COMMON: "the common one", TUNED: "its own"}
_MEBI = 2**20
_TIME_TOLERANCE = 0.05
"""Share of its hours that a run may miss them by. Its steps are found from some seconds of them, in which the machine may have done other
work than later."""


@dataclass(frozen=True)
class Grid:
    """What is there of the planned points."""

    finished: int
    planned: int
    table: Table


def grid(study: Study, table: str) -> Grid | None:
    """Arms by seeds, with the status of each point of the table; None where every planned one is finished."""
    planned = study.declaration.planned[table]
    status = _status(in_table([*study.rows, *study.unread], table))
    finished = sum(status.get(point) == FINISHED for point in planned)
    if finished == len(planned):
        return None
    seeds = sorted({seed for _, seed in planned if seed is not None}) or [None]
    arms = [arm for arm in study.declaration.arms if any(of == arm for of, _ in planned)]
    rows = [[arm, *(status.get((arm, seed), _MISSING) if (arm, seed) in planned else "-" for seed in seeds)] for arm in arms]
    columns = ["arm", *(f"seed {seed}" if seed is not None else "run" for seed in seeds)]
    return Grid(finished, len(planned), Table(f"grid-{table}", "Planned runs", columns, rows))


def _status(rows: Sequence[Row]) -> dict[tuple[str, int | None], str]:
    """(arm, seed) -> status, a finished run before others."""
    status: dict[tuple[str, int | None], str] = {}
    for row in rows:
        point = (row.get("arm", ""), int(row["seed"]) if row.get("seed", "").isdigit() else None)
        if status.get(point) != FINISHED:
            status[point] = row.get("status", FINISHED)
    return status


def plateau(table: Analysed, of_table: str = "") -> Table:
    """of_table: behind the caption, where there are two tables."""
    rows = []
    for arm, part in table.plateau.items():
        steps = sorted(step for row in table.by_arm[arm] if (step := number(row, "plateau_left_step")) is not None)
        middle = f"{steps[(len(steps) - 1) // 2]:,.0f}" if steps else "-"
        rows.append([arm, f"{part.k} of {part.n}", _exact(part), middle])
    note = "Exact interval (Clopper and Pearson). Step: of the runs that left, the median; the lower of the middle two."
    columns = ["arm", "left it", "95 % interval of the share", "step"]
    return Table(slug(f"plateau{of_table}"), f"Runs that left the plateau{of_table}", columns, rows, note)


def _exact(part: Proportion) -> str:
    return f"{100 * part.low:.0f} % to {100 * part.high:.0f} %"


def budgets(table: Analysed, prefix: str = "", title: str = "") -> Table:
    """Raw corpus tokens, positions, FLOPs, the head's share, seconds: whatever the arms were matched on."""
    rows = []
    for arm, budget in table.budgets.items():
        means = budget.means
        memory = means["peak_memory_bytes"]
        rows.append(
            [
                arm,
                str(budget.runs),
                count(means["tokens"]),
                count(means["positions"]),
                count(means["steps"]),
                power_of_ten(means["flops"]),
                percent(budget.head_share),
                count(means["seconds"]),
                count(means["tokens_per_second"]),
                count(means["parameters"]),
                count(memory / _MEBI) if memory is not None else "-",
            ]
        )
    columns = [
        "arm",
        "n",
        "corpus tokens",
        "positions",
        "steps",
        "FLOPs",
        "head's share",
        "seconds",
        "positions/s",
        "parameters",
        "peak MiB",
    ]
    note = (
        "Means over the arm's runs. Corpus tokens: raw text seen; positions: inputs without padding, encoder and decoder; head's share: of "
        "the FLOPs, what the projection to the vocabulary takes. Seconds depend on the machine and on what else it did."
    )
    note += _in_hours(table)
    return Table(slug(f"{prefix} budgets"), "Budget of a run" + (f", {title}" if title else ""), columns, rows, note)


def _in_hours(table: Analysed) -> str:
    """How near runs came to a budget in hours, which was turned into steps before they began; empty for other budgets."""
    every = [row for rows in table.by_arm.values() for row in rows]
    hours = {number(row, f"{CONFIG}budget.hours") for row in every}
    seconds = [taken for row in every if (taken := number(row, "seconds")) is not None]
    if len(hours) != 1 or not seconds or (meant := hours.pop()) is None:
        return ""
    took = f"{count(min(seconds))} to {count(max(seconds))}"
    return f" Meant were {count(3600 * meant)} seconds, turned into steps beforehand; the runs took {took}."


def overlap(table: Analysed) -> Table | None:
    """How much of each evaluated part the training text contains, by arm where the arms have other texts."""
    shares: dict[str, dict[str, str]] = {}
    for arm, rows in table.by_arm.items():
        for column in sorted({column for row in rows for column in row if column.startswith(OVERLAP)}):
            known = [share for row in rows if (share := number(row, column)) is not None]
            shares.setdefault(column.removeprefix(OVERLAP), {})[arm] = percent(sum(known) / len(known)) if known else "-"
    if not shares:
        return None
    note = "Share of the examples of which a long run of words stands in the training text; means over the arm's runs."
    rows = [[part, *(of_arm.get(arm, "-") for arm in table.by_arm)] for part, of_arm in shares.items()]
    return Table("overlap", "Examples that the training text contains", ["task and part", *table.by_arm], rows, note)


def pairing(study: Study) -> Table | None:
    """What the runs of one seed share in each contrast of the table that answers, and what that gained, by the primary metric."""
    table, baseline = study.answering, study.declaration.baseline
    primary = table.primary
    if primary is None or primary.comparison is None or baseline not in table.by_arm:
        return None
    rows = []
    for contrast in primary.comparison.contrasts:
        if contrast.arm not in table.by_arm:
            continue
        common = pairs.shared(table.by_arm[contrast.arm], table.by_arm[baseline])
        correlation = "-" if contrast.paired_correlation is None else f"{contrast.paired_correlation:.2f}"
        gain = "-" if contrast.pairing_gain is None else f"{contrast.pairing_gain:.1f}"
        rows.append([contrast.arm, str(contrast.n), ", ".join(common) or "nothing", correlation, gain])
    which = ", each arm at its own rate" if study.tuned is not None else ""
    note = (
        f"By `{primary.column.label}`, against `{baseline}`{which}. Correlation of the two arms' scores over seeds; gain: how many "
        "times the seeds an unpaired study would need (below 1, pairing lost). Both from 3 seeds on."
    )
    return Table("pairing", "Pairing by seed", ["arm", "common seeds", "shared", "correlation", "gain"], rows, note) if rows else None


def failures(study: Study) -> Table | None:
    """Runs without a result: failed, interrupted, at work, damaged, never started."""
    rows, every = [], [*study.rows, *study.unread]
    for row in every:
        status, which = row.get("status", FINISHED), _rates(row.get("tables", "").split())
        if status != FINISHED:
            run = f"`{row['config_hash'][:12]}`"
            rows.append([row.get("arm") or "-", which, row.get("seed", "-"), run, status, row.get("error", "-")[:160]])
    for table, planned in study.declaration.planned.items():
        known = {(row.get("arm", ""), row.get("seed", "")) for row in in_table(every, table)}
        for arm, seed in planned:
            if (arm, "" if seed is None else str(seed)) not in known:
                rows.append([arm, _rates([table]), "-" if seed is None else str(seed), "-", _MISSING, "-"])
    columns = ["arm", "rate", "seed", "run", "status", "last error"]
    if study.declaration.tune is None:
        columns, rows = [columns[0], *columns[2:]], [[row[0], *row[2:]] for row in rows]
    note = "They have no number, and are in no mean."
    return Table("failures", "Runs without a result", columns, rows, note) if rows else None


def _rates(names: Sequence[str]) -> str:
    """The tables that a run is of, as the report names them."""
    return " and ".join(_RATE[name] for name in names if name in _RATE) or "-"


def undefined(tables: Sequence[Analysed]) -> Table | None:
    """Named metrics that runs have been evaluated by, and that have no value there."""
    seeds: dict[tuple[str, str], set[int]] = {}
    for result in (result for table in tables for result in table.metrics if result.named):
        for arm, of_arm in result.scores.items():
            if without := {seed for seed, score in of_arm.items() if score is None}:
                seeds.setdefault((arm, f"`{result.column.label}`"), set()).update(without)
    rows = [[*which, ", ".join(map(str, sorted(found)))] for which, found in seeds.items()]
    note = "The evaluation ran and came to no number: minimal pairs need a mask token that was trained, for one."
    return Table("undefined", "Scores that are not defined", ["arm", "metric", "seeds"], rows, note) if rows else None


def flagged(study: Study) -> Table | None:
    """Finished runs that stayed on the plateau, that took longer or shorter than their budget in hours, or with a fine-tuning that answers
    every example alike or has no number."""
    runs = {row["config_hash"]: (arm, row) for table in study.tables for arm, rows in table.by_arm.items() for row in rows}
    metrics = list(dict.fromkeys(result.column.metric for table in study.tables for result in table.metrics))
    rows = []
    for arm, row in runs.values():
        why = ["stayed on the plateau"] if flag(row, "left_plateau") is False else []
        why += _missed_hours(row)
        tasks: dict[str, str] = {}
        for metric in metrics:
            if is_flagged(row, metric) and number(row, f"{metric}/collapsed"):
                tasks.setdefault(
                    metric.partition("/")[0], f"{count(number(row, f'{metric}/collapsed'))} of {count(number(row, f'{metric}/n'))}"
                )
        why += [f"{task}: {part} fine-tunings collapsed" for task, part in tasks.items()]
        why += [f"{task}: {part} fine-tunings failed" for task, part in _failed_cells(row, metrics).items()]
        if why:
            rows.append([arm, row.get("seed", "-"), f"`{row['config_hash'][:12]}`", "; ".join(why)])
    note = "They are finished and count in the tables over every run; those that missed their hours alone, in all of the others too."
    return Table("flagged", "Flagged runs", ["arm", "seed", "run", "why"], rows, note) if rows else None


def _missed_hours(row: Row) -> list[str]:
    hours, seconds = number(row, f"{CONFIG}budget.hours"), number(row, "seconds")
    if hours is None or seconds is None or abs(seconds / (3600 * hours) - 1) <= _TIME_TOLERANCE:
        return []
    return [f"trained for {count(seconds)} seconds; its budget was {count(3600 * hours)}"]


def _failed_cells(row: Row, metrics: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for metric in metrics:
        failed, n = failed_cells(row, metric), round(number(row, f"{metric}/n") or 0)
        if failed:
            found.setdefault(metric.partition("/")[0], f"{failed} of {failed + n}")
    return found


def tuning(tune: Mapping[str, Any], declared: Tune, declaration: Declaration) -> Table:
    """What the short runs of each arm gave, and which value it got."""
    values = [str(value) for value in declared.values]
    ends = {_plain(values[0]), _plain(values[-1])} if len(values) > 2 else set()
    rows = []
    for arm, found in tune["arms"].items():
        scores = {_plain(text): value for text, value in (found.get("scores") or {}).items()}
        best = found.get("best")
        mark = " (the common one)" if found.get("shared") else ""
        mark += " (at the end)" * (best is not None and _plain(str(best)) in ends)
        rows.append(
            [mark_arm(arm, declaration), *(score(scores.get(_plain(value))) for value in values), "-" if best is None else f"{best}{mark}"]
        )
    note = f"`{declared.metric}` of the short run at each value; {declared.goal.removesuffix('imize')}imum is chosen."
    if any("at the end" in row[-1] for row in rows):
        note += " At the end: of the values that were tried; a better one may lie beyond."
    return Table("tuning", f"{declared.key} of each arm", ["arm", *values, "chosen"], rows, note)


def _plain(value: str) -> str:
    try:
        return f"{float(value):g}"
    except ValueError:
        return value
