"""The points of a sweep: what each sets, what it is called, and the config that it composes to.

values of the parameters -> overrides -> config (through mlm_lab.config.compose) -> config_hash, which names its run folder
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mlm_lab.run_config import config_hash
from mlm_lab.run_folder import RunFolder
from mlm_lab.sweep.sweep_file import ARM, SEED, SweepFile

if TYPE_CHECKING:
    from mlm_lab.config.composition import Loaded
    from mlm_lab.run_config import RunConfig


@dataclass(frozen=True)
class Point:
    """One run of a sweep. Its config is composed once, when it is asked for."""

    values: Mapping[str, Any]
    """Parameter -> its value."""
    overrides: tuple[str, ...]
    """The words after `python -m mlm_lab`."""
    arm: str
    """What it belongs to in tables and figures: the values without the seed."""
    seed: int | None
    """None where the sweep has no seeds."""
    tuned: str | None = None
    """The word that tuning tries, or chose for its arm ("optim.peak_lr=0.002"); None in a point of the file itself."""
    loaded: Loaded = field(default_factory=dict, repr=False, compare=False)
    """What compositions have read: the points of a sweep share it."""

    @cached_property
    def config(self) -> RunConfig:
        """Raises UserError as mlm_lab.config.compose does."""
        from mlm_lab.config import compose

        return compose(self.overrides, loaded=self.loaded)

    @cached_property
    def config_hash(self) -> str:
        return config_hash(self.config)

    @property
    def folder(self) -> RunFolder:
        return RunFolder.of(self.config.output_dir, self.config_hash)


def grid(sweep: SweepFile) -> list[Point]:
    """Every combination of the values, the last parameter changing fastest."""
    loaded: Loaded = {}
    combinations = itertools.product(*sweep.parameters.values())
    return [make_point(sweep, dict(zip(sweep.parameters, values, strict=True)), loaded) for values in combinations]


def make_point(sweep: SweepFile, values: Mapping[str, Any], loaded: Loaded | None = None) -> Point:
    """The point with these values of the parameters, spelt as W&B's agent would spell them."""
    words = tuple(f"{key}={value}" for key, value in values.items())
    shared = {} if loaded is None else loaded
    return Point(values=values, overrides=(*sweep.overrides, *words), arm=label(values), seed=values.get(SEED), loaded=shared)


def find_arm(sweep: SweepFile, given: Any) -> str | None:
    """The label of the arm that a study names: by the value of its only factor, its label, an arm's name, or a mapping of factors to
    values. None where there is no such arm."""
    keys = sweep.factors
    arms = [dict(zip(keys, values, strict=True)) for values in itertools.product(*(sweep.parameters[key] for key in keys))]
    for arm in arms:
        if isinstance(given, Mapping):
            is_meant = {key: spell(value) for key, value in given.items()} == {key: spell(value) for key, value in arm.items()}
        else:
            is_meant = spell(given) in (label(arm), *([spell(value) for value in arm.values()] if len(arm) == 1 else []))
        if is_meant:
            return label(arm)
    return None


def label(values: Mapping[str, Any]) -> str:
    """What an arm is called: "mask_ratio=0.4", "objective=rtd", "bert_0_20_80" (an arm's own name), "mask_ratio=0.4 unit=word".

    values: config key -> value; the seed is left out. Keys are shortened to their last part unless two would look alike.
    """
    keys = [key for key in values if key != SEED]
    short = {key: key.rpartition(".")[2] for key in keys}
    alike = len(set(short.values())) < len(keys)
    words = [spell(values[key]) if key == ARM else f"{key if alike else short[key]}={spell(values[key])}" for key in keys]
    return " ".join(words) or "all"


def spell(value: Any) -> str:
    """A value in one spelling: 0.4 for 0.40, [0.8,0.1,0.1] without blanks, true for True."""
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(spell, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
