"""What can be seen of a sweep before its first run: whether each point composes, is a run of its own, and logs what the sweep looks at.

Every mistake of a kind is told at once, with the file and the line.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from itertools import product

from mlm_lab.errors import InvalidFields, UserError, refuse
from mlm_lab.keys import suggest
from mlm_lab.sweep import logged_metrics
from mlm_lab.sweep.points import Point, find_arm, make_point
from mlm_lab.sweep.sweep_file import Distribution, SweepFile


def check(sweep: SweepFile, points: Sequence[Point]) -> None:
    """points: the grid, or what stands for a search (`corners`).

    Raises:
        UserError: a parameter or a study's key is no key of the config; a value is out of range; two points are the same run; a metric that
            no run logs; a contrast between arms that do not exist; input files that are missing.
    """
    _compose(sweep, points)
    _refuse_equal(sweep, points)
    _check_study(sweep, points)
    _check_metrics(sweep, points)


def check_inputs(points: Iterable[Point]) -> None:
    """Whether the files that the points read are there. Raises UserError."""
    from mlm_lab import runner

    for point in points:
        stages = [importlib.import_module(f"mlm_lab.stages.{name}") for name in point.config.stages]
        runner.check_inputs(point.config, stages)


def corners(sweep: SweepFile) -> list[Point]:
    """Points that stand for a search: every end of every range, and every listed value once."""
    ends = {key: (values.low, values.high) if isinstance(values, Distribution) else values for key, values in sweep.parameters.items()}
    ranges = [key for key in ends if isinstance(sweep.parameters[key], Distribution)]
    first = {key: values[0] for key, values in ends.items()}
    found = [first | dict(zip(ranges, values, strict=True)) for values in product(*(ends[key] for key in ranges))]
    found += [first | {key: value} for key in ends if key not in ranges for value in ends[key][1:]]
    loaded: dict = {}
    return [make_point(sweep, values, loaded) for values in found]


def _compose(sweep: SweepFile, points: Sequence[Point]) -> None:
    """Compose every point; a mistake is put down to the parameter that its text names, else to the command or the words behind the file."""
    found: dict[str, str] = {}
    for point in points:
        try:
            _ = point.config
        except InvalidFields as error:
            for problem in error.problems:
                found.setdefault(f"{problem.field}={problem.given!r}: must be {problem.allowed}", _place(sweep, problem.field))
        except UserError as error:
            lines = error.problem.splitlines()
            for line in [line.strip() for line in lines[1:]] or lines:
                found.setdefault(line, _place(sweep, line.partition("=")[0].partition(",")[0]))
    _refuse(f"{sweep.path}: points that cannot be composed", found)


def _place(sweep: SweepFile, key: str) -> str:
    """Where the key was set: "line 12", or "command line", which goes before the file."""
    key = key.lstrip("+~")
    if any(word.lstrip("+~").startswith((f"{key}=", f"{key}.")) for word in sweep.given):
        return "command line"
    for name in (key, *(parameter for parameter in sweep.parameters if key.startswith(f"{parameter}."))):
        if name in sweep.parameters:
            return _line(sweep, f"parameters.{name}")
    return _line(sweep, "command" if any(word.lstrip("+~").startswith(f"{key}=") for word in sweep.command) else "parameters")


def _line(sweep: SweepFile, key: str) -> str:
    return sweep.where(key).rpartition(", ")[2]


def _refuse(what: str, found: dict[str, str]) -> None:
    refuse(what, [f"{place}: {text}" for text, place in found.items()])


def _refuse_equal(sweep: SweepFile, points: Sequence[Point]) -> None:
    first: dict[str, Point] = {}
    found: dict[str, str] = {}
    for point in points:
        other = first.setdefault(point.config_hash, point)
        if other is point:
            continue
        keys = [key for key in point.values if point.values[key] != other.values[key]]
        same = " and ".join(" ".join(f"{key}={p.values[key]}" for key in keys) for p in (other, point))
        found.setdefault(f"{same} are the same run: nothing that its result depends on differs", _line(sweep, f"parameters.{keys[0]}"))
    _refuse(f"{sweep.path}: points that are equal after composition", found)


def _check_study(sweep: SweepFile, points: Sequence[Point]) -> None:
    from mlm_lab.config import compose_values
    from mlm_lab.keys import dotted, suggest_key

    found: dict[str, str] = {}
    study = sweep.study
    every = [*dotted(compose_values(points[0].overrides, loaded=points[0].loaded)), *sweep.parameters]
    for place, keys in (("description.factor", study.factor), ("description.tune.key", [study.tune.key] if study.tune else [])):
        for key in keys:
            if key not in every:
                found[f"{key}: no such key{suggest_key(key, every)}"] = _line(sweep, place)
    arms_are_left_out = any(word.partition("=")[0] in sweep.factors for word in sweep.given)
    if study.primary is not None and not sweep.is_searched and not arms_are_left_out:
        arms = list(dict.fromkeys(point.arm for point in points))
        for name in ("baseline", "contrast"):
            given = getattr(study.primary, name)
            if find_arm(sweep, given) is None:
                near = suggest(str(given), arms)
                found[f"primary.{name}: there is no arm {given}{near} ({', '.join(arms)})"] = _line(sweep, f"description.primary.{name}")
    if study.primary is not None and find_arm(sweep, study.primary.baseline) == find_arm(sweep, study.primary.contrast) is not None:
        found["primary.contrast: is the baseline itself; name another arm"] = _line(sweep, "description.primary.contrast")
    known = _published() if study.published else []
    for name in study.published:
        if name not in known:
            near = suggest(name, known)
            found[f"published: no such table as {name}{near} ({', '.join(known)})"] = _line(sweep, "description.published")
    _refuse(f"{sweep.path}: a study that its points cannot answer", found)


def _check_metrics(sweep: SweepFile, points: Sequence[Point]) -> None:
    study = sweep.study
    wanted = {sweep.metric: "metric.name"}
    wanted |= {study.primary.metric: "description.primary.metric"} if study.primary else {}
    wanted |= {study.tune.metric: "description.tune.metric"} if study.tune else {}
    wanted |= dict.fromkeys(study.metrics, "description.metrics") | wanted
    arms = {point.arm: point.config for point in reversed(points)}
    missing = logged_metrics.missing(list(wanted), list(arms.values()))
    known = sorted({name for config in arms.values() for name in logged_metrics.plain(config)})
    found = {
        f"{name}: a metric that no run logs{suggest(name, known)} ({', '.join(known)})": _line(sweep, wanted[name]) for name in missing
    }
    _refuse(f"{sweep.path}: metrics", found)


def _published() -> list[str]:
    from mlm_lab.report import published

    return list(published.facts()["studies"])
