"""The keys of a config: which there are, whether one exists, and which was meant by one that does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


def suggest(word: str, among: Iterable[str]) -> str:
    """What an error adds: the nearest word, or nothing where none is near."""
    near = get_close_matches(word, list(among), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def suggest_key(key: str, every: list[str]) -> str:
    """The nearest key: the whole path, or the same last word elsewhere (mask_ratio for objective.mask_ratio)."""
    same = [other for other in every if other.rpartition(".")[2] == key.rpartition(".")[2]]
    return f"; did you mean {same[0]}?" if same else suggest(key, every)


def dotted(values: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    """Every key, those that hold further keys too: "model", "model.hidden_size", ..."""
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{name}.")


def holds(values: object, parts: list[str]) -> bool:
    """Whether the key exists, or lies in a mapping that is open (empty in its YAML file, such as evaluation.files)."""
    for part in parts:
        if values == {} and isinstance(values, dict):
            return True
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True
