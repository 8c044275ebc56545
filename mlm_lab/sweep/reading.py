"""A sweep file from its YAML: every key looked at, every mistake with its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from mlm_lab.keys import suggest
from mlm_lab.sweep.marked_yaml import Mistakes, Source
from mlm_lab.sweep.sweep_file import (
    DISTRIBUTIONS,
    LESS_IS_BETTER,
    SEED,
    Distribution,
    Primary,
    Study,
    SweepFile,
    Tune,
    is_number,
    is_whole,
    spelling,
)

METHODS = ("grid", "random", "bayes")
GOALS = ("minimize", "maximize")
KEYS = ("program", "method", "metric", "parameters", "command", "early_terminate", "run_cap", "description", "name", "project", "entity")
"""What W&B's schema has at the top level, as far as a run of a command needs it."""
PARAMETER_KEYS = ("value", "values", "distribution", "min", "max", "q")
EARLY_KEYS = ("type", "min_iter", "max_iter", "s", "eta", "strict")


def read(path: Path | str) -> SweepFile:
    """The sweep file.

    Raises:
        UserError: it is missing or no YAML, has a key that is unknown or given twice, a nested parameter, `+experiment` as a parameter, a
            value that W&B's agent could not hand on. All of a kind at once, with their lines.
    """
    path = Path(path)
    source = Source(path, KEYS)
    values, mistakes = source.values, source.mistakes
    for key in values:
        if key not in KEYS:
            mistakes.add(key, f"unknown key {key!r}{suggest(str(key), KEYS)} (W&B's schema: {', '.join(KEYS)})")
    mistakes.expect("method", values.get("method") in METHODS, f"method: must be one of {', '.join(METHODS)}")
    metric = mistakes.mapping("metric", values.get("metric"), ("name", "goal", "target"), needed=("name", "goal"))
    mistakes.expect("metric.goal", metric.get("goal") in (*GOALS, None), f"metric.goal: must be one of {', '.join(GOALS)}")
    _check_goal("metric", metric.get("name"), metric.get("goal"), mistakes)
    parameters = _parameters(values.get("parameters"), values.get("method"), mistakes)
    command = values.get("command") or []
    _check_command(command, mistakes)
    early = values.get("early_terminate")
    if early is not None:
        early = mistakes.mapping("early_terminate", early, EARLY_KEYS, needed=("type",))
        mistakes.expect("early_terminate.type", early.get("type") == "hyperband", "early_terminate.type: must be hyperband")
    cap = values.get("run_cap")
    has_end = cap is not None or not any(isinstance(given, Distribution) for given in parameters.values())
    mistakes.expect("method", has_end, f"a {values.get('method')} search has no end of its own: run_cap: 20, how many points are tried")
    mistakes.expect("run_cap", cap is None or (is_whole(cap) and cap >= 1), "run_cap: must be a whole number of at least 1")
    study = _study(values.get("description"), parameters, mistakes)
    is_plain_grid = values.get("method") == "grid" and early is None
    mistakes.expect("description.tune", study.tune is None or is_plain_grid, "tune: goes with a grid whose points all run to their end")
    mistakes.refuse()
    return SweepFile(
        path=path,
        name=path.stem,
        method=values["method"],
        metric=metric["name"],
        goal=metric["goal"],
        parameters=parameters,
        command=tuple(map(str, command)),
        study=study,
        early_terminate=early,
        run_cap=cap,
        lines=source.lines,
    )


def _parameters(given: Any, method: Any, mistakes: Mistakes) -> dict[str, tuple[Any, ...] | Distribution]:
    if not isinstance(given, Mapping) or not given:
        mistakes.add("parameters", "parameters: must be a mapping of config keys to {values: [...]}")
        return {}
    found = {}
    for key, spec in given.items():
        place, known = f"parameters.{key}", len(mistakes.found)
        if str(key).lstrip("+~").partition("@")[0] == "experiment":
            mistakes.add(place, f"{key}: an experiment is no parameter; put the word +experiment=NAME into command:, or use arm")
        elif not isinstance(key, str) or str(key)[:1] in "+~":
            mistakes.add(place, f"{key}: a parameter is a config key, arm or seed, without a sign before it")
        elif not isinstance(spec, Mapping):
            mistakes.add(place, f"{key}: must be a mapping: {{values: [...]}}")
        elif "parameters" in spec:
            mistakes.add(place, f"{key}: a nested parameter; write its keys with dots ({key}.{_first_name(spec['parameters'])})")
        else:
            mistakes.mapping(place, spec, PARAMETER_KEYS)
        if len(mistakes.found) == known:
            found[key] = _parameter(key, dict(spec), method, mistakes)
    return found


def _parameter(key: str, spec: dict[str, Any], method: Any, mistakes: Mistakes) -> tuple[Any, ...] | Distribution | None:
    place = f"parameters.{key}"
    if "value" in spec or "values" in spec:
        values = spec["values"] if "values" in spec else [spec["value"]]
        if not isinstance(values, list) or not values or len(spec) > 1:
            mistakes.add(place, f"{key}: must have a list of values, and nothing beside it")
            return None
        for value in values:
            if value is None:
                mistakes.add(place, f'{key}: W&B would hand null on as None; write the string "null"')
            elif isinstance(value, Mapping):
                mistakes.add(place, f"{key}: a nested value; write its keys with dots, or make it an option of conf/arm")
        if len({spelling(value) for value in values}) < len(values):
            mistakes.add(place, f"{key}: a value is given twice")
        return tuple(values)
    ends = [spec.get("min"), spec.get("max")]
    both_whole = all(is_whole(end) for end in ends)
    name = spec.get("distribution", "int_uniform" if both_whole else "uniform")
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends) or ends[0] >= ends[1]:
        mistakes.add(place, f"{key}: must have values: [...], or min and max (numbers with a dot: 1.0e-4)")
    elif name not in DISTRIBUTIONS:
        mistakes.add(place, f"{key}: distribution must be one of {', '.join(DISTRIBUTIONS)}")
    elif method == "grid":
        mistakes.add(place, f"{key}: a grid needs values: [...]; a range is for random and bayes")
    elif "log" in name and ends[0] <= 0:
        mistakes.add(place, f"{key}: min of a logarithmic range must be above 0")
    else:
        return Distribution(name=name, low=ends[0], high=ends[1], step=spec.get("q", 1 if name.startswith("q_") else None))
    return None


def _check_goal(place: str, metric: Any, goal: Any, mistakes: Mistakes) -> None:
    """A study that takes the largest loss for the best would call every verdict by its opposite."""
    right = goal != "maximize" or not str(metric).endswith(LESS_IS_BETTER)
    mistakes.expect(f"{place}.goal", right, f"{metric}: goal {goal}, but of this metric less is better")


def _check_command(command: Any, mistakes: Mistakes) -> None:
    if not isinstance(command, list) or "mlm_lab" not in command or "${args_no_hyphens}" not in command:
        example = "[${env}, ${interpreter}, -m, mlm_lab, +experiment=ablation, study=NAME, ${args_no_hyphens}]"
        mistakes.add("command", f"command: must be a list like {example}")


def _study(given: Any, parameters: Mapping[str, Any], mistakes: Mistakes) -> Study:
    """Prose is the question; a mapping has the fields of Study."""
    values = {"question": given.strip()} if isinstance(given, str) else given
    values = {} if values is None else mistakes.mapping("description", values, tuple(f.name for f in fields(Study)))
    primary, tune, margin = values.get("primary"), values.get("tune"), values.get("margin")
    if primary is not None:
        names = tuple(f.name for f in fields(Primary))
        primary = mistakes.mapping("description.primary", primary, names, needed=names)
    if tune is not None:
        tune = _tune(tune, parameters, mistakes)
    is_margin = margin is None or (is_number(margin) and margin > 0)
    mistakes.expect("description.margin", is_margin, f"margin: must be a number above 0, not {margin!r}")
    pilot_seeds = values.get("pilot_seeds") or []
    are_seeds = isinstance(pilot_seeds, list) and all(map(is_whole, pilot_seeds))
    mistakes.expect("description.pilot_seeds", are_seeds, "pilot_seeds: must be a list of whole numbers")
    own = [seed for seed in parameters.get(SEED) or () if are_seeds and seed in pilot_seeds]
    mistakes.expect(
        "description.pilot_seeds", not own, f"pilot_seeds: {own} are seeds of the sweep: what chose a metric is not used to test it"
    )
    mistakes.expect("description.ordered", isinstance(values.get("ordered", False), bool), "ordered: must be true or false")
    return Study(
        question=str(values.get("question") or ""),
        primary=Primary(**primary) if primary and len(primary) == len(fields(Primary)) and set(primary) <= set(names) else None,
        metrics=_words(values.get("metrics") or []),
        margin=margin,
        factor=_words(values.get("factor") or [key for key in parameters if key != SEED]),
        ordered=bool(values.get("ordered", False)),
        tune=tune,
        published=_words(values.get("published") or []),
        pilot_seeds=tuple(pilot_seeds) if are_seeds else (),
    )


def _tune(given: Any, parameters: Mapping[str, Any], mistakes: Mistakes) -> Tune | None:
    names, known = tuple(f.name for f in fields(Tune)), len(mistakes.found)
    tune = mistakes.mapping("description.tune", given, names, needed=names)
    if len(mistakes.found) > known:
        return None
    seeds = parameters.get(SEED) or ()
    mistakes.expect("description.tune.key", tune["key"] not in parameters, f"tune.key: {tune['key']} is a parameter of the sweep already")
    own = isinstance(seeds, tuple) and tune["seed"] in seeds
    mistakes.expect("description.tune.values", isinstance(tune["values"], list) and len(tune["values"]) > 1, "tune.values: at least two")
    mistakes.expect("description.tune.goal", tune["goal"] in GOALS, f"tune.goal: must be one of {', '.join(GOALS)}")
    _check_goal("description.tune", tune["metric"], tune["goal"], mistakes)
    mistakes.expect("description.tune.seed", is_whole(tune["seed"]), "tune.seed: must be a whole number")
    mistakes.expect("description.tune.seed", not own, "tune.seed: must be none of the sweep's seeds: what chose is not used to test")
    share = tune["budget_share"]
    mistakes.expect("description.tune.budget_share", is_number(share) and 0 < share <= 1, "tune.budget_share: must be in (0, 1]")
    return Tune(**{**tune, "values": tuple(tune["values"])}) if len(mistakes.found) == known else None


def _words(given: Any) -> tuple[str, ...]:
    return tuple(map(str, given if isinstance(given, list | tuple) else [given]))


def _first_name(given: Any) -> str:
    return str(next(iter(given), "KEY")) if isinstance(given, Mapping) else "KEY"
