"""What a sweep leaves beside the run folders, for the next start of the runner and for the report:

    OUTPUT_DIR/sweeps/STUDY/
        points/RUN_ID.json    a run that the sweep planned: its arm, seed and overrides, the tables it belongs to, and how it failed
        logs/RUN_ID.log       all that its processes printed
        tune.json             which value each arm was given, and what finding it cost (tune.py)
        search.journal        the search's trials (search.py)
        .lock                 held while a record is changed

Machines that share the folder plan the same points, and note what became of those that they ran: a record is read and written anew under
the lock of the study's folder, so that none loses what another has noted. Whether a run is finished is not here: its own folder says so, or
results.csv where the folder is gone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlm_lab.atomic import locked, write_text
from mlm_lab.report.results import RESULTS, read
from mlm_lab.report.rows import Row, number
from mlm_lab.run_config import EVALUATED_DIGITS, RunConfig, evaluations_asked
from mlm_lab.sweep.points import Point
from mlm_lab.training import step_times

COMMON, TUNED, TUNING = "common", "tuned", "tuning"
"""The tables that a run may belong to: every point; the points with their arm's own rate; the short runs that chose it."""
LAST_LINES = 10
LOCK = ".lock"


class Records:
    """The folder of a study's sweep."""

    def __init__(self, output_dir: Path, study: str):
        self.path = output_dir / "sweeps" / study

    def log_file(self, point: Point) -> Path:
        return self.path / "logs" / f"{point.folder.run_id}.log"

    def plan(self, point: Point, table: str) -> None:
        """Note the point before it runs. A run may be in two tables."""
        with self._changing(point) as known:
            known |= {
                "config_hash": point.config_hash,
                "arm": point.arm,
                "seed": point.seed,
                "values": dict(point.values),
                "tables": sorted({*known.get("tables", ()), table}),
                "tuned": point.tuned or known.get("tuned"),
                "overrides": list(point.overrides),
                "error": known.get("error"),
                "exit_code": known.get("exit_code"),
                "stopped_early": known.get("stopped_early", False),
            }

    def note(self, point: Point, **fields: Any) -> None:
        """Set `error` (last lines), `exit_code`, `stopped_early`."""
        with self._changing(point) as known:
            known |= fields

    def read(self, point: Point) -> dict[str, Any]:
        """{} where the point has not been planned here."""
        try:
            return json.loads(self._file(point).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        write_text(self.path / name, json.dumps(values, indent=2, ensure_ascii=False) + "\n")

    @contextmanager
    def _changing(self, point: Point) -> Iterator[dict[str, Any]]:
        """What is recorded of the point, to be changed in the block while no other process does."""
        with locked(self.path / LOCK):
            before = self.read(point)
            values = dict(before)
            yield values
            if values != before:
                write_text(self._file(point), json.dumps(values, indent=2, ensure_ascii=False) + "\n")

    def _file(self, point: Point) -> Path:
        return self.path / "points" / f"{point.folder.run_id}.json"


def last_lines(log: Path, start: int) -> list[str]:
    """The last lines that are not blank of what was written to the log from byte `start` on."""
    with open(log, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(start, size - 20_000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return [line.rstrip() for line in lines if line.strip()][-LAST_LINES:]


@dataclass(frozen=True)
class Held:
    """What a finished run's row in results.csv holds of its evaluation."""

    evaluated: frozenset[str] | None
    """Beginnings of the hashes of each task's cells (`run_config.evaluations_asked`); None in a table of before they were written."""
    tasks: frozenset[str]

    def has_all_of(self, run_hash: str, config: RunConfig) -> bool:
        """Whether it holds what the config asks for: the same tasks under the same seeds, protocol and settings."""
        if "evaluate" not in config.stages:
            return True
        if self.evaluated is None:
            return set(config.tasks) <= self.tasks
        return all(asked[:EVALUATED_DIGITS] in self.evaluated for asked in evaluations_asked(run_hash, config).values())


def finished_elsewhere(experiment: Path) -> dict[str, Held]:
    """What experiments/NAME/results.csv holds already, by the config_hash of finished runs whose folders may be gone."""
    return {row["config_hash"]: _held(row) for row in _finished_rows(experiment)}


def restore_step_times(experiment: Path, output_dir: Path) -> None:
    """What finished runs of results.csv turned their hours into steps by, for those that follow: their arms go on with the same steps.
    What a run under output_dir has measured stays."""
    for row in _finished_rows(experiment):
        key, seconds = row.get("step_time/key"), number(row, "step_time/seconds")
        if key and seconds:
            step_times.publish(output_dir, key, seconds)


def _finished_rows(experiment: Path) -> list[Row]:
    return [row for row in read(experiment / RESULTS) if row.get("status") == "finished"]


def _held(row: Mapping[str, str]) -> Held:
    tasks = frozenset(name.partition("/")[0] for name, value in row.items() if value and name and "/" in name)
    return Held(frozenset(row["evaluated"].split()) if row.get("evaluated") else None, tasks)
