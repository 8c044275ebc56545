"""What the sweep door leaves beside the run folders: which points it planned, how each ended, and what tuning chose.

OUTPUT_DIR/sweeps/NAME/points/RUN_ID.json   {config_hash, arm, seed, values, tables, error, ...}
                       tune.json            {key, common, arms, cost, ...}

The report keeps both in the study's folder, so that it can be made again where these are gone.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlm_lab.errors import OUTSIDE
from mlm_lab.report.gather import Damaged
from mlm_lab.report.rows import CONFIG, Row, spelt_alike, text

COMMON, TUNED = "common", "tuned"
"""The two tables: every arm at one learning rate, and each at its own."""
TUNE_JSON, POINTS_JSON = "tune.json", "points.json"
TUNED_ALIKE = ("key", "metric", "goal", "seed", "budget_share", "values")
"""What of tune.json says how arms were tuned: what was chosen in another way is not mixed with it."""


_ENDED_BY_OTHERS = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of processes that a machine without memory, or a person, has ended."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A point that the sweep door planned."""

    config_hash: str
    arm: str
    seed: int | None
    values: Mapping[str, Any]
    tables: tuple[str, ...]
    """Which tables its run belongs to."""
    error: str | None
    """The last line that it printed before it failed."""
    exit_code: int | None = None
    """Of its process; minus the number of the signal that ended it."""
    tuned: str | None = None
    """KEY=VALUE of the tuned table."""


def read_records(output_dir: Path, study: str, folder: Path) -> tuple[list[Record], list[Damaged]]:
    """The planned points, in the order of their hashes, and the files that cannot be read.

    folder: the study's, whose points.json has those of earlier reports: their files may be gone.
    """
    found, damaged = {}, []
    files = [folder / POINTS_JSON, *sorted((output_dir / "sweeps" / study / "points").glob("*.json"))]
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            records = [_record(values) for values in (content if file == files[0] else [content])]
            found |= {record.config_hash: record for record in records}
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            damaged.append(Damaged(f"{file.parent.name}/{file.name}", f"cannot be read ({type(error).__name__}: {error})"))
    return [found[name] for name in sorted(found)], damaged


def _record(values: Mapping[str, Any]) -> Record:
    error = values.get("error")
    lines = [error] if isinstance(error, str) else error or []
    return Record(
        config_hash=values["config_hash"],
        arm=values["arm"],
        seed=values["seed"],
        values=dict(values["values"]),
        tables=tuple(values["tables"] if values.get("tables") is not None else (COMMON,)),
        error=_reason(lines) if error else None,
        exit_code=values.get("exit_code"),
        tuned=values.get("tuned"),
    )


def _reason(lines: Sequence[str]) -> str:
    """The line that says what went wrong: that of an error of ours, else the last one."""
    spoken = [line.strip() for line in lines if line.strip()]
    return next((line for line in reversed(spoken) if line.startswith("error: ")), spoken[-1] if spoken else "no output")


def read_tune(*folders: Path) -> dict | None:
    """tune.json of the first folder that has a readable one, with the arms that it lacks from the others."""
    merged = None
    for folder in folders:
        try:
            found = json.loads((folder / TUNE_JSON).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and isinstance(found.get("arms"), dict):
            merged = found if merged is None else merge_tunes(merged, found)
    return merged


def merge_tunes(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The first with the arms that the other alone has, if both were tuned alike."""
    if any(first.get(name) != other.get(name) for name in TUNED_ALIKE):
        return dict(first)
    common, arms = ({**(other.get(name) or {}), **(first.get(name) or {})} for name in ("common", "arms"))
    return part_of(max(first, other, key=lambda tune: len(tune["arms"])), common, arms)


def part_of(tune: Mapping[str, Any], common: Mapping[str, Any], arms: Mapping[str, Any]) -> dict[str, Any]:
    """Tuned as `tune` was, with these arms: what they cost is the sum, or for arms that do not say it what `tune` took for all of them."""
    cost = total_cost(arms) or (tune.get("cost") if set(arms) == set(tune["arms"]) else None)
    return {**tune, "common": dict(common), "arms": dict(arms), "cost": cost}


def total_cost(arms: Mapping[str, Any]) -> dict[str, float] | None:
    """What the short runs of all arms took; None where one does not say it."""
    costs = [arm.get("cost") for arm in arms.values()]
    return {name: sum(cost[name] for cost in costs) for name in costs[0]} if costs and all(costs) else None


def as_chosen(records: Sequence[Record], rows: Sequence[Row], key: str, tune: Mapping[str, Any]) -> list[Record]:
    """The records without the tuned table for runs at a value that is not their arm's any more, since further values were tried.

    key: that is tuned. rows: for records of before they said their value. tune: tune.json.
    """
    values = {row["config_hash"]: row.get(CONFIG + key) for row in rows}
    return [replace(record, tables=_tables_of(record, values.get(record.config_hash), tune)) for record in records]


def _tables_of(record: Record, value: str | None, tune: Mapping[str, Any]) -> tuple[str, ...]:
    best = (tune["arms"].get(record.arm) or {}).get("best")
    value = spelt_alike(record.tuned.partition("=")[2]) if record.tuned else value
    past = value is not None and best is not None and spelt_alike(best) != value
    return tuple(table for table in record.tables if not (past and table == TUNED))


def failed_rows(records: list[Record], known: set[str]) -> list[Row]:
    """A row for each point that failed and left no run folder, so that the table of failures has it."""
    return [_failed_row(record) for record in records if record.error is not None and record.config_hash not in known]


def _failed_row(record: Record) -> Row:
    row = {"config_hash": record.config_hash, "status": "failed", "seed": text(record.seed), "arm": record.arm, "error": text(record.error)}
    return {**row, "failure": OUTSIDE} if record.exit_code in _ENDED_BY_OTHERS else row
