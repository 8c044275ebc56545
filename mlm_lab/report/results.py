"""results.csv and curves.csv of a study: what is there already and what the run folders hold, merged by config_hash.

A row whose run folder is gone stays as it is, so a study grows over days and machines, and its folders may be deleted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

from mlm_lab.atomic import write_text
from mlm_lab.errors import UserError
from mlm_lab.report.rows import CONFIG, Row

RESULTS, CURVES = "results.csv", "curves.csv"
_FIRST = ("config_hash", "weights_sha256", "status", "seed", "arm")
_THEN = (
    "tokens",
    "positions",
    "flops",
    "flops_head",
    "parameters",
    "steps",
    "seconds",
    "tokens_per_second",
    "peak_memory_bytes",
    "left_plateau",
    "plateau_left_step",
    "precision",
    "evaluated",
)
_GROUPS = ("step_time/", "hardware/", "versions/", "git_commit", "error", "failure", "fingerprints/")
_CURVE_FIRST = ("config_hash", "step", "tokens", "seconds", "flops")


def read(file: Path, key: str = "config_hash") -> list[Row]:
    """The rows of a CSV file; none where it does not exist. key: a column that it has, and every row of it.

    Raises:
        UserError: the file is not a table of runs.
    """
    if not file.exists():
        return []
    try:
        with file.open(newline="", encoding="utf-8") as handle:
            reader = csv.DictReader(handle, strict=True)
            rows = [{name: cell for name, cell in row.items() if name is not None and cell} for row in reader]
            header = reader.fieldnames or []
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError("the results cannot be read", where=str(file), given=str(error), fix="restore the file, or move it away") from None
    if key not in header:
        raise UserError(f"the results have no column {key}", where=str(file), fix="restore the file, or move it away")
    return [row for row in rows if row.get(key)]


def merge(known: Iterable[Row], found: Iterable[Row]) -> tuple[list[Row], list[str]]:
    """The known rows with what was found, in the known order, new ones after them; and a line for each conflict.

    Of the same weights, what was found goes before what was known, and what only the known row has (an evaluation whose folder is gone)
    stays; of a metric that was found, nothing of before: a score that is no longer defined is none. Of other weights one row is kept
    whole, a finished one before another, and what was found before what was known.
    """
    merged = {row["config_hash"]: row for row in known}
    conflicts = []
    for row in found:
        name = row["config_hash"]
        old = merged.get(name, {})
        same = old.get("weights_sha256") == row.get("weights_sha256")
        if old and not same and old.get("weights_sha256") and row.get("weights_sha256"):
            conflicts.append(f"{name[:12]}: the run folder holds other weights than the recorded row; the row of the folder is kept")
        if same and old:
            kept = _without(old, {column.removesuffix("/n") for column in row if column.endswith("/n")})
            merged[name] = {**kept, **row, "status": _better(old, row)}
            if merged[name]["status"] == "finished":
                for column in ("error", "failure"):
                    merged[name].pop(column, None)
        elif row.get("status") == "finished" or old.get("status") != "finished":
            merged[name] = row
    return list(merged.values()), conflicts


def _without(row: Row, metrics: Set[str]) -> Row:
    """The row without these metrics and what stands behind a further slash of them."""
    return {name: cell for name, cell in row.items() if name not in metrics and name.rpartition("/")[0] not in metrics}


def _better(old: Row, new: Row) -> str:
    """A finished run whose folder is at work again (on one more evaluation) is finished."""
    return "finished" if "finished" in (old.get("status"), new.get("status")) else new.get("status", "")


def merge_curves(known: Iterable[Row], found: Mapping[str, Sequence[Row]], hashes: Iterable[str]) -> dict[str, list[Row]]:
    """config_hash -> validations, for the runs of `hashes`: those found, else those known."""
    curves: dict[str, list[Row]] = {}
    for line in known:
        curves.setdefault(line["config_hash"], []).append(line)
    curves |= {name: list(lines) for name, lines in found.items()}
    return {name: curves[name] for name in hashes if name in curves}


def write(file: Path, rows: Sequence[Row]) -> None:
    """Write results.csv, whole and at once. The same rows give the same bytes."""
    write_rows(file, rows, _order(rows))


def write_curves(file: Path, curves: Mapping[str, Sequence[Row]]) -> None:
    """Write curves.csv, whole and at once."""
    lines = [line for curve in curves.values() for line in curve]
    further = sorted({name for line in lines for name in line} - set(_CURVE_FIRST))
    write_rows(file, lines, [*_CURVE_FIRST, *further])


def write_rows(file: Path, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Write a CSV file of these columns, whole and at once."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(file, out.getvalue())


def _order(rows: Iterable[Row]) -> list[str]:
    """Who and which arm, the config, what it took, where it ran, then every metric."""
    names = {name for row in rows for name in row}
    config = sorted(name for name in names if name.startswith(CONFIG))
    about = [name for group in _GROUPS for name in sorted(names) if name.startswith(group) and name not in _FIRST]
    first = [*_FIRST, *config, *_THEN, *about]
    return [*first, *sorted(names - set(first))]
