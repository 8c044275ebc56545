"""Build a config dataclass from plain values: which class may be built, what each field holds, all mistakes collected at once.

{"_target_": "mlm_lab.models.encoder_config.Encoder", "hidden_size": 128.0, ...}
    -> the class, if it is a frozen dataclass of mlm_lab         checked as a string before anything is imported
    -> each value in the type of its field's annotation          128.0 -> 128, [a, b] -> (a, b), "a" -> ("a",)
    -> the class's own __post_init__                             ranges

Own code: Hydra's `instantiate` calls whatever a config names, and stops at its first mistake.

A field that came after runs had been made stands in its class's ADDED, with the value that means what those had: their config.yaml lacks
it, and a run with that value has the hash that it had before (run_config).
"""

from __future__ import annotations

import importlib
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

from mlm_lab.errors import InvalidFields, Problem, UserError

_TARGET = re.compile(r"mlm_lab(\.[a-z][a-z0-9_]*)+\.[A-Z][A-Za-z0-9]*")
_MISSING = "???"  # OmegaConf's mark for a value that has to be given


class _Mismatch(Exception):
    """The value does not fit the annotation; the message says what would."""


def find_class(target: object, where: str) -> type:
    """The dataclass that `_target_` names. It has to be defined in the module that the name says, so that nothing which a module merely
    imports can be reached.

    Raises:
        UserError: it is anything else than a dataclass of mlm_lab.
    """
    refusal = UserError(
        "this _target_ is not one that a config may name",
        where=f"{where}._target_" if where else "_target_",
        given=target,
        allowed="a config dataclass of mlm_lab: mlm_lab.MODULE.CLASS",
    )
    if not isinstance(target, str) or not _TARGET.fullmatch(target):
        raise refusal
    module_name, _, class_name = target.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise refusal from None
        raise
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and is_dataclass(found) and found.__module__ == module_name):
        raise refusal
    return found


def build(values: Mapping[str, object], path: str, problems: list[Problem], cls: type | None = None) -> object | None:
    """The dataclass that the values describe, or None after adding what is wrong to `problems`, each with `path` before its field.

    cls: the class, where the values have no `_target_`.
    """
    if not isinstance(values, Mapping):
        problems.append(Problem(path, values, "a mapping of keys"))
        return None
    cls = cls or find_class(values.get("_target_"), path)
    hints, names = typing.get_type_hints(cls), [field.name for field in fields(cls) if field.init]
    ready: dict[str, object] = {}
    unfit, unbuilt = set(), set()  # fields whose value has a wrong type; fields whose own dataclass could not be built
    for name in values:
        if name not in names and name != "_target_":
            problems.append(Problem(_join(path, name), values[name], f"left out: {cls.__name__} has no such field"))
            unfit.add(name)
    for name in names:
        found_before = len(problems)
        if name not in values and name in (later := getattr(cls, "ADDED", {})):
            ready[name] = later[name]
        elif name not in values:
            problems.append(Problem(_join(path, name), "nothing", "given in the YAML file of this option"))
        else:
            ready[name] = _field(values[name], hints[name], _join(path, name), problems)
        if len(problems) > found_before:
            (unbuilt if isinstance(values.get(name), Mapping) else unfit).add(name)
    if unfit:  # the ranges of the others may depend on these
        return None
    try:
        built = cls(**ready)
    except InvalidFields as error:
        built = None
        problems.extend(p._replace(field=_join(path, p.field)) for p in error.problems if p.field not in unbuilt)
    return None if unbuilt else built


def _field(value: object, hint: object, path: str, problems: list[Problem]) -> object:
    if value == _MISSING:
        problems.append(Problem(path, "nothing", "given"))
        return None
    if isinstance(value, Mapping) and ("_target_" in value or is_dataclass(hint)):
        return build(value, path, problems, cls=None if "_target_" in value else hint)
    try:
        return coerce(value, hint)
    except _Mismatch as error:
        problems.append(Problem(path, value, str(error)))
        return None


def coerce(value: object, hint: object) -> object:
    """The value in the type of the annotation, where nothing is lost by it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (typing.Any, object):
        return value
    if origin in (typing.Union, types.UnionType):
        return _one_of(value, arguments)
    if origin is typing.Literal:
        return _expect(value, value in arguments, "one of " + ", ".join(map(str, arguments)))
    if origin is tuple:
        return _tuple(value, arguments)
    if origin is dict:
        _expect(value, isinstance(value, Mapping), "a mapping")
        return {str(name): coerce(item, arguments[1]) for name, item in value.items()}
    return _scalar(value, hint)


def _scalar(value: object, hint: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is type(None):
        return _expect(value, value is None, "null")
    if hint is bool:
        return _expect(value, isinstance(value, bool), "true or false")
    if hint is int:
        return int(_expect(value, is_number and math.isfinite(value) and value == int(value), "a whole number"))
    if hint is float:
        return float(_expect(value, is_number and math.isfinite(value), "a number"))
    if hint is str:
        is_text = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
        return str(_expect(value, is_text, "text"))
    if hint is Path:
        return Path(str(_expect(value, isinstance(value, str | Path), "a path"))).expanduser()
    raise TypeError(f"a config field cannot be annotated {hint!r}")


def _tuple(value: object, arguments: tuple) -> tuple:
    """A single value stands for a list of one, so that `tags=baseline` works."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        _expect(value, value is not None and not isinstance(value, Mapping), "a list")
        return tuple(coerce(item, arguments[0]) for item in items)
    _expect(value, len(items) == len(arguments), f"a list of {len(arguments)}")
    return tuple(coerce(item, argument) for item, argument in zip(items, arguments, strict=True))


def _one_of(value: object, hints: tuple) -> object:
    """The value as the first of the types that takes it; text counts last, since every number could be text."""
    allowed = []
    for hint in sorted(hints, key=lambda hint: hint is str and not isinstance(value, str)):
        try:
            return coerce(value, hint)
        except _Mismatch as error:
            allowed.append(str(error))
    raise _Mismatch(" or ".join(allowed))


def _expect(value: object, holds: bool, allowed: str) -> object:
    if not holds:
        raise _Mismatch(allowed)
    return value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
