"""A study as the report sees it: what was declared, and every run that is known of it, from results.csv and from the run folders at hand.

Nothing is written here, so that the report and its verification stand on the same thing.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from mlm_lab.errors import LISTED, UserError
from mlm_lab.keys import suggest
from mlm_lab.report import comparable, examples, gather, placing, records, results
from mlm_lab.report.analysis import Table, analyse
from mlm_lab.report.declaration import Declaration, of_sweep, of_words
from mlm_lab.report.examples import OverExamples, over_examples
from mlm_lab.report.gather import FINISHED, Damaged, Gathered
from mlm_lab.report.published import PublishedStudy, beside
from mlm_lab.report.records import COMMON, TUNED, Record
from mlm_lab.report.rows import Row, text

RUN_ID = 12
"""Letters of a run's hash that name its folder."""


DEFAULTS = {"output_dir": "runs", "experiments": "experiments", "sweep": "sweeps/{name}.yaml"}
"""Where a study's files are unless the command line says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a study's files are."""

    output_dir: Path
    """Parent of the run folders."""
    folder: Path
    """experiments/NAME."""
    sweep: Path
    """The sweep file, which need not exist."""

    def command(self, name: str, words: Mapping[str, str]) -> str:
        """The command that makes the report from these places and the declaration's words."""
        given = {"output_dir": self.output_dir, "experiments": self.folder.parent, "sweep": self.sweep}
        settings = {key: path for key, path in given.items() if path != Path(DEFAULTS[key].format(name=name))}
        return shlex.join(["python", "-m", "mlm_lab.report", name, *(f"{key}={value}" for key, value in {**settings, **words}.items())])

    def studies(self) -> list[str]:
        """The studies that the run folders and the reports at hand are of."""
        reports = {file.parent.name for file in self.folder.parent.glob(f"*/{results.RESULTS}")}
        return sorted(gather.studies(self.output_dir) | reports)


@dataclass(frozen=True, kw_only=True)
class Study:
    declaration: Declaration
    rows: Sequence[Row]
    """Every run that is known, placed in arms."""
    curves: Mapping[str, Sequence[Row]]
    found: Gathered
    """What the run folders at hand hold."""
    common: Table
    """Every arm at one learning rate, or the only table there is."""
    tuned: Table | None
    """Each arm at its own; None where nothing was tuned. In a study that tunes the primary contrast is tested here and not in `common`."""
    tune: Mapping | None
    """tune.json."""
    records: Sequence[Record]
    """The points that the sweep door planned."""
    examples: Sequence[OverExamples]
    """Contrasts of the common table with an interval over seeds and examples, where there are 10 seeds."""
    published: Sequence[PublishedStudy]
    warnings: Sequence[str]
    damaged: Sequence[Damaged]
    unread: Sequence[Row]
    """Runs whose folder cannot be read and that no row is recorded of; placed in arms, without a number."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """One, or the common one and the tuned one."""
        return (self.common,) if self.tuned is None else (self.common, self.tuned)

    @property
    def answering(self) -> Table:
        """The table that the primary contrast is tested in, as far as there is one."""
        return self.tables[-1]


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a study before anything is checked."""

    rows: list[Row]
    """Those of results.csv and of the run folders, merged."""
    curves: dict[str, list[Row]]
    found: Gathered
    """What the run folders at hand hold."""
    conflicts: list[str]
    """A line for each run whose folder and row disagree on the weights."""


def gather_known(name: str, places: Places) -> Known:
    """Merge what results.csv and curves.csv hold with the run folders at hand.

    Raises:
        UserError: results.csv cannot be read.
    """
    found = gather.gather(places.output_dir, name)
    rows, conflicts = results.merge(results.read(places.folder / results.RESULTS), found.rows)
    hashes = [row["config_hash"] for row in rows]
    curves = results.merge_curves(results.read(places.folder / results.CURVES), found.curves, hashes)
    return Known(rows=rows, curves=curves, found=found, conflicts=conflicts)


def read_study(name: str, places: Places, words: Mapping[str, str], known: Known, again: bool = False) -> Study:
    """Place the rows in arms, check them and analyse.

    words: the declaration where there is no sweep file: factor, metric, baseline, contrast, margin. again: whether to work out anew what
    examples.csv keeps.

    Raises:
        UserError: there is no run of the study; the runs differ in more than is declared; a mistake in the sweep file.
    """
    rows = [dict(row) for row in known.rows]
    recorded, damaged = records.read_records(places.output_dir, name, places.folder)
    damaged, unread = _beside_rows([*known.found.damaged, *damaged], rows, recorded)
    rows += records.failed_rows(recorded, {row["config_hash"] for row in [*rows, *unread]})
    sweep = None
    if places.sweep.exists():
        from mlm_lab.sweep.reading import read

        sweep = read(places.sweep)
    if not rows:
        _refuse_nothing(name, places)
    tune = records.read_tune(places.output_dir / "sweeps" / name, places.folder)
    if sweep is not None and sweep.study.tune is not None and tune is not None:
        recorded = records.as_chosen(recorded, rows, sweep.study.tune.key, tune)
    declaration = of_sweep(name, sweep, recorded, rows, tune) if sweep else of_words(name, words, rows)
    signatures = placing.Signatures(declaration, sweep)
    placing.place([*rows, *unread], declaration, recorded, signatures)
    placing.place_in_tables([*rows, *unread], declaration.tune.key if declaration.tune else None, tune)
    tables = _checked_tables(rows, declaration, signatures)
    kept = results.read(places.folder / examples.FILE, key="weights")
    return Study(
        declaration=declaration,
        rows=rows,
        curves=known.curves,
        found=known.found,
        common=tables[0],
        tuned=tables[1],
        tune=tune,
        records=recorded,
        examples=over_examples(tables[0], declaration.baseline, known.found.folders, kept, again, declaration.pilot_seeds),
        published=beside(declaration, tables[1] or tables[0]),
        warnings=[*_warnings(rows, declaration), *known.conflicts],
        damaged=damaged,
        unread=unread,
    )


def _refuse_nothing(name: str, places: Places) -> NoReturn:
    others = places.studies()
    shown = ", ".join(others[:LISTED]) + (f", ... ({len(others)} in all)" if len(others) > LISTED else "")
    elsewhere = "output_dir=FOLDER for run folders elsewhere, experiments=FOLDER for reports elsewhere"
    raise UserError(
        f"no run of the study {name} is known{suggest(name, others)}",
        where=f"{places.output_dir} and {places.folder / results.RESULTS}",
        allowed=shown or None,
        fix=f"python -m mlm_lab.sweep {places.sweep} --run, or {elsewhere}" if places.sweep.exists() else elsewhere,
    )


def _beside_rows(damaged: Sequence[Damaged], rows: Sequence[Row], recorded: Sequence[Record]) -> tuple[list[Damaged], list[Row]]:
    """Each damage with what became of its run: the row of results.csv stands for it, or it has none and is among the second."""
    of_rows = {row["config_hash"][:RUN_ID] for row in rows}
    of_records = {record.config_hash[:RUN_ID]: {"config_hash": record.config_hash, "seed": text(record.seed)} for record in recorded}
    told, unread = [], []
    for damage in damaged:
        if damage.row is None:
            told.append(damage)
        elif damage.folder in of_rows:
            told.append(replace(damage, reason=f"its folder cannot be read; its row is that of {results.RESULTS}: {damage.reason}"))
        else:
            told.append(replace(damage, reason=f"its folder cannot be read, so it has no number: {damage.reason}"))
            unread.append({**damage.row, **of_records.get(damage.folder, {})})
    return told, unread


def _checked_tables(rows: Sequence[Row], declaration: Declaration, signatures: placing.Signatures) -> tuple[Table, Table | None]:
    """The common table and that of tuned arms, each over runs that may stand in one."""
    common, tuned = placing.in_table(rows, COMMON), placing.in_table(rows, TUNED)
    for part, key in ((common, None), (tuned, declaration.tune.key if declaration.tune else None)):
        _check([row for row in part if _counts(row)], declaration, signatures, key)
    return analyse(common, declaration, answers=declaration.tune is None), analyse(tuned, declaration) if tuned else None


def _warnings(rows: Sequence[Row], declaration: Declaration) -> list[str]:
    """Of each table; once where both say the same."""
    told: dict[str, str] = {}
    for table, of_table in ((COMMON, ""), (TUNED, "With each arm at its own rate: ")):
        counted = [row for row in placing.in_table(rows, table) if _counts(row)]
        for line in comparable.warnings(counted, declaration.baseline):
            told.setdefault(line, f"{of_table}{line}")
    return list(told.values())


def _check(rows: Sequence[Row], declaration: Declaration, signatures: placing.Signatures, tuned_key: str | None) -> None:
    differences = comparable.undeclared_differences(rows, declaration.factors, tuned_key)
    if differences:  # what the factors change besides themselves is known once the arms are composed
        declared = {column.removeprefix("config/") for column in signatures.columns}
        differences = comparable.undeclared_differences(rows, [*declaration.factors, *declared], tuned_key)
    comparable.refuse_undeclared(differences, rows, declaration.name)
    comparable.refuse_twins(rows, declaration.name)


def _counts(row: Row) -> bool:
    return bool(row.get("arm")) and row.get("status", FINISHED) == FINISHED
