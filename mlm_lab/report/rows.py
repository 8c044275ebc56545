"""A run as one row of text: what a cell of results.csv holds, and how a number, a flag or a config value is read from it.

Text alone is kept, so that a row read from a run folder and the same row read back from results.csv are equal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

Row = dict[str, str]
"""Column -> cell. A column that a run has nothing for is left out, or empty."""

CONFIG = "config/"
"""Before the dotted keys of the config in the names of columns."""


def text(value: object) -> str:
    """The cell of a value: numbers so that they read back to the same bits, truth values as true and false, nothing as nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ""
    return " ".join(str(value).split())


def number(row: Mapping[str, str], column: str) -> float | None:
    """The number in a cell; None where there is none."""
    try:
        value = float(row.get(column) or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def flag(row: Mapping[str, str], column: str) -> bool | None:
    """The truth value in a cell; None where there is none."""
    return {"true": True, "false": False}.get(row.get(column, ""))


def config_text(value: object) -> str:
    """The cell of a config value, one spelling for each value: 4500000 for 4.5e6 too, "[0.8, 0.1, 0.1]", "null"."""
    return json.dumps(_canonical(value), ensure_ascii=False) if not isinstance(value, str) else " ".join(value.split())


def spelt_alike(value: object) -> str:
    """`config_text` of a value as a sweep file or a command line gives it, where a list or a number may stand as text."""
    if isinstance(value, str):
        import yaml

        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            return config_text(value)
        if isinstance(value, str):  # 1e-3 has no point, and is text to YAML
            try:
                value = float(value)
            except ValueError:
                return config_text(value)
    return config_text(value)


def flatten(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """(dotted key, value) of every leaf; an empty mapping is one."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _canonical(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return int(value)
    return value
