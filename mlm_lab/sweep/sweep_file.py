"""A sweep file: W&B's own schema, valid for `wandb sweep` as it is, and what is ours in its `description:`.

W&B takes no key that it does not know, and shows the description as text; so the study (question, primary contrast, margin, ...) is YAML
inside that text. reading.py makes it of a file. What needs the config (is this a key? does a run log that?) is asked in check.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm_lab.errors import UserError
from mlm_lab.training.budget import BUDGETS

if TYPE_CHECKING:
    from mlm_lab.sweep.points import Point

LESS_IS_BETTER = ("loss", "perplexity", "bits_per_character", "plateau_left_step", "seconds")
"""Ends of the names of metrics of which less is better."""
DISTRIBUTIONS = ("int_uniform", "uniform", "q_uniform", "log_uniform_values", "q_log_uniform_values")
"""Of W&B's distributions those that a range of a config key needs; each has a counterpart in Optuna."""
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

        from mlm_lab.config.overrides import each_value

        parameters, others = dict(self.parameters), list(self.words)
        for word in words:
            key, values = each_value(word)
            if key in parameters:
                parameters[key] = tuple(value if value == "null" else yaml.safe_load(value) for value in values)
                if len({spelling(value) for value in parameters[key]}) < len(values):
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


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def spelling(value: Any) -> str:
    """A value in one spelling: 0.40 and 0.4 are one, and so are [1, 0] and [1,0]."""
    return str(float(value)) if is_number(value) else str(value)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
