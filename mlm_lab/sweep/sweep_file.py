"""A sweep file: W&B's own schema, valid for `wandb sweep` as it is, and what is ours in its `description:`.

W&B takes no key that it does not know, and shows the description as text; so the study (question, primary contrast, margin, ...) is YAML
inside that text. Every mistake names its line. What needs the config (is this a key? does a run log that?) is asked in check.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm_lab.errors import UserError, refuse
from mlm_lab.keys import suggest

if TYPE_CHECKING:
    import yaml

    from mlm_lab.sweep.points import Point

BUDGETS = ("steps", "tokens", "flops", "hours")
METHODS = ("grid", "random", "bayes")
GOALS = ("minimize", "maximize")
LESS_IS_BETTER = ("loss", "perplexity", "plateau_left_step", "seconds")
"""Ends of the names of metrics of which less is better."""
DISTRIBUTIONS = ("int_uniform", "uniform", "q_uniform", "log_uniform_values", "q_log_uniform_values")
"""Of W&B's distributions those that a range of a config key needs; each has a counterpart in Optuna."""
KEYS = ("program", "method", "metric", "parameters", "command", "early_terminate", "run_cap", "description", "name", "project", "entity")
"""What W&B's schema has at the top level, as far as a run of a command needs it."""
PARAMETER_KEYS = ("value", "values", "distribution", "min", "max", "q")
EARLY_KEYS = ("type", "min_iter", "max_iter", "s", "eta", "strict")
SEED = "seed"
ARM = "arm"


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A parameter that is searched between two ends."""

    name: str
    """One of DISTRIBUTIONS."""
    low: float
    high: float
    step: float | None
    """q: distance of the values; None: any."""

    @property
    def is_whole(self) -> bool:
        return self.name == "int_uniform"

    @property
    def is_log(self) -> bool:
        return "log" in self.name


@dataclass(frozen=True, kw_only=True)
class Primary:
    """The one contrast that is tested without a correction, named before the runs."""

    metric: str
    """As a run's summary names it (probe/mlm_15_loss), or TASK/METRIC of an evaluation."""
    baseline: Any
    """Value of the factor, an arm's name, or for several factors a mapping of key to value."""
    contrast: Any
    """What is set against the baseline; likewise."""


@dataclass(frozen=True, kw_only=True)
class Tune:
    """Each arm gets a value of its own for one key (its peak learning rate), chosen on short runs."""

    key: str
    """The config key that is tuned."""
    values: tuple[Any, ...]
    """The short grid."""
    metric: str
    """What the short runs are compared by."""
    goal: str
    """minimize or maximize."""
    seed: int
    """Seed of the short runs: none of the sweep's own, so that no run that chose is used to test."""
    budget_share: float
    """Budget of a short run, as a share of a point's."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What the sweep asks, and how the answer will be judged; stated before the first run."""

    question: str
    """One sentence."""
    primary: Primary | None
    """The contrast that the study is about; None: all contrasts are corrected for their number."""
    metrics: tuple[str, ...]
    """Further metrics that the report shows."""
    margin: float | None
    """Differences of the primary metric below this are equivalence, in the metric's unit; None: equivalence is not tested."""
    factor: tuple[str, ...]
    """The config keys that the arms differ in (those that conf/arm sets, where `arm` is the parameter); all others must be alike."""
    ordered: bool
    """Whether the values as listed are an order, so that a trend can be tested."""
    tune: Tune | None
    published: tuple[str, ...]
    """Ids of published tables that stand beside the report's."""
    pilot_seeds: tuple[int, ...]
    """Seeds of runs that chose the metric, the size or the margin: in tables and figures, in no test."""


@dataclass(frozen=True, kw_only=True)
class SweepFile:
    """A sweep file as read. `parameters` keeps the file's order; the first value of each is the baseline."""

    path: Path
    name: str
    """Stem of the file: names the study and its folder in experiments/."""
    method: str
    """grid, random or bayes."""
    metric: str
    goal: str
    """minimize or maximize."""
    parameters: Mapping[str, tuple[Any, ...] | Distribution]
    """Config key, `arm` or `seed` -> its values, or the range that is searched."""
    command: tuple[str, ...]
    """As W&B's agent gets it."""
    study: Study
    early_terminate: Mapping[str, Any] | None
    """W&B's settings of hyperband: {type, min_iter or max_iter and s, eta}."""
    run_cap: int | None
    """Most points of a random or bayes search."""
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Where each key stands ("parameters.seed" -> 12), from 1; those of the study as "description.primary.metric"."""

    words: tuple[str, ...] = ()
    """key=value behind the file on the command line: for every point."""
    given: tuple[str, ...] = field(default=(), compare=False)
    """All that stood behind the file, those that replaced a parameter's values too."""

    @property
    def overrides(self) -> tuple[str, ...]:
        """What every point has: the words of the command after `mlm_lab` that are not W&B's macros, then those of the command line. The
        command's logger is for W&B's agents: without an account nothing is recorded for it."""
        command = list(self.command)
        after = command[command.index("mlm_lab") + 1 :] if "mlm_lab" in command else []
        given = {_key(word) for word in self.words}
        changed = given | ({f"budget.{name}" for name in BUDGETS} if any(key.startswith("budget.") for key in given) else set())
        left_out = (changed | {"logger"}) - {"experiment"}
        kept = [word for word in after if not word.startswith("${") and _key(word) not in left_out]
        study = [] if any(_key(word) == "study" for word in (*kept, *self.words)) else [f"study={self.name}"]
        return (*kept, *study, *self.words)

    @property
    def factors(self) -> tuple[str, ...]:
        """The parameters that tell the arms apart."""
        return tuple(key for key in self.parameters if key != SEED)

    @property
    def is_searched(self) -> bool:
        """Whether the points are found one after the other, by what earlier ones gave."""
        return self.method != "grid"

    def with_words(self, words: Sequence[str]) -> SweepFile:
        """The sweep with key=value behind the file. A parameter's own key replaces its values (seed=0,1,2); any other changes every point.

        Raises UserError for a word that cannot be read, and for several values of what is no parameter.
        """
        import yaml

        from mlm_lab.config import each_value

        parameters, others = dict(self.parameters), list(self.words)
        for word in words:
            key, values = each_value(word)
            if key in parameters:
                parameters[key] = tuple(value if value == "null" else yaml.safe_load(value) for value in values)
                if len({_word(value) for value in parameters[key]}) < len(values):
                    raise UserError("a value is given twice", given=word, fix="each once")
                if None in parameters[key]:
                    raise UserError("a parameter without a value", given=word, fix=f"{key}=VALUE, or several with commas between")
            elif len(values) == 1:
                others.append(word)
            else:
                fix = f"one value, or several of a parameter of {self.path}: {', '.join(parameters)}"
                raise UserError("several values of what is no parameter of the sweep", given=word, fix=fix)
        return replace(self, parameters=parameters, words=tuple(others), given=(*self.given, *words))

    def points(self) -> list[Point]:
        """The points of a grid, in the order of the values; the last parameter changes fastest. Empty for a search."""
        from mlm_lab.sweep.points import grid

        return [] if self.is_searched else grid(self)

    def where(self, key: str = "") -> str:
        """For messages: the file, and the line of the key (or of what holds it)."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return f"{self.path}, line {self.lines[key]}" if key else str(self.path)


def read(path: Path | str) -> SweepFile:
    """The sweep file.

    Raises:
        UserError: it is missing or no YAML, has a key that is unknown or given twice, a nested parameter, `+experiment` as a parameter, a
            value that W&B's agent could not hand on. All of a kind at once, with their lines.
    """
    path = Path(path)
    source = _Source(path)
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
    mistakes.expect("run_cap", cap is None or (_is_whole(cap) and cap >= 1), "run_cap: must be a whole number of at least 1")
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


class _Mistakes:
    """What is wrong with a file, in the order of its lines."""

    def __init__(self, path: Path, lines: Mapping[str, int]):
        self._path, self._lines, self._found = path, lines, []

    def add(self, key: str, text: str) -> None:
        while key and key not in self._lines:
            key = key.rpartition(".")[0]
        self._found.append((self._lines.get(key, 1), text))

    def expect(self, key: str, holds: bool, text: str) -> None:
        if not holds:
            self.add(key, text)

    def mapping(self, key: str, value: Any, allowed: tuple[str, ...], needed: tuple[str, ...] = ()) -> dict[str, Any]:
        """The mapping that stands at `key`, its unknown and missing keys noted; {} where it is none."""
        name = key.removeprefix("description.")
        if not isinstance(value, Mapping):
            self.add(key, f"{name}: must be a mapping of {', '.join(allowed)}")
            return {}
        for word in value:
            if word not in allowed:
                self.add(f"{key}.{word}", f"{name}: unknown key {word!r}{suggest(str(word), allowed)} ({', '.join(allowed)})")
        if missing := [word for word in needed if value.get(word) is None]:
            self.add(key, f"{name}: {', '.join(missing)} is missing")
        return dict(value)

    def refuse(self) -> None:
        refuse(
            f"{self._path}: not a sweep file", [f"line {line}: {text}" for line, text in sorted(self._found, key=lambda found: found[0])]
        )


class _Source:
    """The file as plain values, with the line of every key, those inside the description's own YAML too."""

    def __init__(self, path: Path):
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            there = sorted(str(file) for folder in {path.parent, Path("sweeps")} for file in folder.glob("*.yaml"))
            near = suggest(str(path), there) or suggest(f"sweeps/{path.stem}.yaml", there)
            raise UserError(
                f"the sweep file cannot be read: {error.strerror}{near}", where=str(path), fix="sweeps/ holds those there are"
            ) from None
        except UnicodeDecodeError as error:
            raise UserError("the sweep file is not UTF-8", where=str(path), given=str(error)) from None
        self.lines: dict[str, int] = {}
        self.mistakes = _Mistakes(path, self.lines)
        self.values = self._load(path, text, "", 1)
        if not isinstance(self.values, dict):
            raise UserError("not a sweep file: it holds no mapping", where=str(path), allowed=", ".join(KEYS))
        description = self.values.get("description")
        if isinstance(description, str):
            first = self.lines["description"]
            block = re.match(r"description:\s*[|>]", text.splitlines()[first - 1])
            self.values["description"] = self._load(path, description, "description", first + bool(block))

    def _load(self, path: Path, text: str, prefix: str, first_line: int) -> Any:
        import yaml

        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            if node is None:
                return None
            if prefix and not _is_mapping_of_words(node):
                return text
            self._mark(node, prefix, first_line)
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            if prefix and not re.match(r"\w+:", text):
                return text  # prose, with a sign that YAML would read otherwise
            mark = getattr(error, "context_mark", None) or getattr(error, "problem_mark", None)
            where = f"{path}, line {mark.line + first_line}" if mark else str(path)
            raise UserError(f"this is not YAML: {getattr(error, 'problem', None) or error}", where=where) from None

    def _mark(self, node: yaml.Node, prefix: str, first_line: int) -> None:
        import yaml

        if not isinstance(node, yaml.MappingNode):
            return
        for name, value in node.value:
            key = f"{prefix}.{name.value}" if prefix else str(name.value)
            if key in self.lines:
                self.mistakes.add(key, f"{name.value}: given a second time in line {name.start_mark.line + first_line}")
            else:
                self.lines[key] = name.start_mark.line + first_line
                self._mark(value, key, first_line)


def _is_mapping_of_words(node: yaml.Node) -> bool:
    """Not prose, of which a colon makes a mapping too."""
    import yaml

    return isinstance(node, yaml.MappingNode) and all(re.fullmatch(r"\w+", name.value) for name, _ in node.value)


def _parameters(given: Any, method: Any, mistakes: _Mistakes) -> dict[str, tuple[Any, ...] | Distribution]:
    if not isinstance(given, Mapping) or not given:
        mistakes.add("parameters", "parameters: must be a mapping of config keys to {values: [...]}")
        return {}
    found = {}
    for key, spec in given.items():
        place, known = f"parameters.{key}", len(mistakes._found)
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
        if len(mistakes._found) == known:
            found[key] = _parameter(key, dict(spec), method, mistakes)
    return found


def _parameter(key: str, spec: dict[str, Any], method: Any, mistakes: _Mistakes) -> tuple[Any, ...] | Distribution | None:
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
        if len({_word(value) for value in values}) < len(values):
            mistakes.add(place, f"{key}: a value is given twice")
        return tuple(values)
    ends = [spec.get("min"), spec.get("max")]
    both_whole = all(_is_whole(end) for end in ends)
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


def _check_goal(place: str, metric: Any, goal: Any, mistakes: _Mistakes) -> None:
    """A study that takes the largest loss for the best would call every verdict by its opposite."""
    right = goal != "maximize" or not str(metric).endswith(LESS_IS_BETTER)
    mistakes.expect(f"{place}.goal", right, f"{metric}: goal {goal}, but of this metric less is better")


def _check_command(command: Any, mistakes: _Mistakes) -> None:
    if not isinstance(command, list) or "mlm_lab" not in command or "${args_no_hyphens}" not in command:
        example = "[${env}, ${interpreter}, -m, mlm_lab, +experiment=ablation, study=NAME, ${args_no_hyphens}]"
        mistakes.add("command", f"command: must be a list like {example}")


def _study(given: Any, parameters: Mapping[str, Any], mistakes: _Mistakes) -> Study:
    """Prose is the question; a mapping has the fields of Study."""
    values = {"question": given.strip()} if isinstance(given, str) else given
    values = {} if values is None else mistakes.mapping("description", values, tuple(f.name for f in fields(Study)))
    primary, tune, margin = values.get("primary"), values.get("tune"), values.get("margin")
    if primary is not None:
        names = tuple(f.name for f in fields(Primary))
        primary = mistakes.mapping("description.primary", primary, names, needed=names)
    if tune is not None:
        tune = _tune(tune, parameters, mistakes)
    is_margin = margin is None or (_is_number(margin) and margin > 0)
    mistakes.expect("description.margin", is_margin, f"margin: must be a number above 0, not {margin!r}")
    pilot_seeds = values.get("pilot_seeds") or []
    are_seeds = isinstance(pilot_seeds, list) and all(map(_is_whole, pilot_seeds))
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


def _tune(given: Any, parameters: Mapping[str, Any], mistakes: _Mistakes) -> Tune | None:
    names, known = tuple(f.name for f in fields(Tune)), len(mistakes._found)
    tune = mistakes.mapping("description.tune", given, names, needed=names)
    if len(mistakes._found) > known:
        return None
    seeds = parameters.get(SEED) or ()
    mistakes.expect("description.tune.key", tune["key"] not in parameters, f"tune.key: {tune['key']} is a parameter of the sweep already")
    own = isinstance(seeds, tuple) and tune["seed"] in seeds
    mistakes.expect("description.tune.values", isinstance(tune["values"], list) and len(tune["values"]) > 1, "tune.values: at least two")
    mistakes.expect("description.tune.goal", tune["goal"] in GOALS, f"tune.goal: must be one of {', '.join(GOALS)}")
    _check_goal("description.tune", tune["metric"], tune["goal"], mistakes)
    mistakes.expect("description.tune.seed", _is_whole(tune["seed"]), "tune.seed: must be a whole number")
    mistakes.expect("description.tune.seed", not own, "tune.seed: must be none of the sweep's seeds: what chose is not used to test")
    share = tune["budget_share"]
    mistakes.expect("description.tune.budget_share", _is_number(share) and 0 < share <= 1, "tune.budget_share: must be in (0, 1]")
    return Tune(**{**tune, "values": tuple(tune["values"])}) if len(mistakes._found) == known else None


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _words(given: Any) -> tuple[str, ...]:
    return tuple(map(str, given if isinstance(given, list | tuple) else [given]))


def _word(value: Any) -> str:
    """A value in one spelling: 0.40 and 0.4 are one, and so are [1, 0] and [1,0]."""
    return str(float(value)) if _is_number(value) else str(value)


def _first_name(given: Any) -> str:
    return str(next(iter(given), "KEY")) if isinstance(given, Mapping) else "KEY"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
