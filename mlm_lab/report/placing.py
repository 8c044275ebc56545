"""Which arm and which table each run belongs to: by the sweep runner's record of it, else by its config.

A run that an agent started has no record. Where the factors are config keys their values say the arm; where they are groups or arms of
conf/, the sweep's points are composed, and what they differ in says it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from mlm_lab.report.declaration import Declaration
from mlm_lab.report.gather import HASHED
from mlm_lab.report.records import COMMON, TUNED, Record
from mlm_lab.report.rows import CONFIG, Row, config_text, flatten, spelt_alike

if TYPE_CHECKING:
    from mlm_lab.sweep.sweep_file import SweepFile


class Signatures:
    """What the arms set. Composed at most once, and only when asked for: that takes half a second for each arm."""

    def __init__(self, declaration: Declaration, sweep: SweepFile | None):
        self._declaration, self._sweep = declaration, sweep

    @cached_property
    def composed(self) -> dict[str, Row]:
        """Arm -> the columns that the arms differ in, as they compose. Empty without a sweep file.

        Raises:
            UserError: a point of the file cannot be composed.
        """
        if self._sweep is None:
            return {}
        from mlm_lab.config import compose_values
        from mlm_lab.sweep.points import make_point

        cells = {}
        for arm, values in self._declaration.arms.items():
            composed = compose_values(make_point(self._sweep, values).overrides)
            parts = {name: value for name, value in composed.items() if name in HASHED and name != "seeds"}
            cells[arm] = {CONFIG + key: config_text(value) for key, value in flatten(parts)}
        return {arm: {column: own.get(column, "") for column in _differing(cells.values())} for arm, own in cells.items()}

    @property
    def columns(self) -> set[str]:
        """The columns that the arms differ in, as they compose."""
        return {column for cells in self.composed.values() for column in cells}


def place(rows: Sequence[Row], declaration: Declaration, records: Sequence[Record], signatures: Signatures) -> None:
    """Set `arm` and `tables` of each row as far as they can be told; a row that is in no arm of the study has an empty `arm`."""
    recorded = {record.config_hash: record for record in records}
    columns = {CONFIG + key for values in declaration.arms.values() for key in values}
    direct = all(any(column in row for row in rows) for column in columns)
    for row in rows:
        record = recorded.get(row["config_hash"])
        if record is not None:
            row["arm"], row["tables"] = record.arm, " ".join(record.tables)
        elif direct and columns <= row.keys():
            row["arm"] = _by_values(row, declaration) or ""
        elif row.get("arm") not in declaration.arms and any(column.startswith(CONFIG) for column in row):
            row["arm"] = _by_signature(row, signatures.composed) or ""


def place_in_tables(rows: Sequence[Row], tune_key: str | None, tune: Mapping | None) -> None:
    """Set `tables` of the rows that no record placed: common, tuned or both, by the value of the tuned key."""
    for row in rows:
        if row.get("tables"):
            continue
        if tune_key is None or tune is None:
            row["tables"] = COMMON
            continue
        own, value = tune["arms"].get(row.get("arm")) or {}, row.get(CONFIG + tune_key)
        chosen = {COMMON: (tune.get("common") or {}).get(row.get("arm")), TUNED: own.get("best")}
        row["tables"] = " ".join(table for table, best in chosen.items() if best is not None and spelt_alike(best) == value)


def in_table(rows: Sequence[Row], table: str) -> list[Row]:
    """The rows of one of the two tables."""
    return [row for row in rows if table in row.get("tables", "").split()]


def _by_values(row: Row, declaration: Declaration) -> str | None:
    for arm, values in declaration.arms.items():
        if all(row.get(CONFIG + key) == spelt_alike(value) for key, value in values.items()):
            return arm
    return None


def _by_signature(row: Row, signatures: Mapping[str, Row]) -> str | None:
    fitting = [arm for arm, cells in signatures.items() if all(row.get(column, "") == cell for column, cell in cells.items())]
    return fitting[0] if len(fitting) == 1 else None


def _differing(rows: Sequence[Row]) -> list[str]:
    columns = sorted({column for row in rows for column in row})
    return [column for column in columns if len({row.get(column, "") for row in rows}) > 1]
