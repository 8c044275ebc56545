"""From a command line to a checked, frozen `RunConfig`. The one place, with __main__, that knows Hydra.

    overrides -> parse (overrides.py)               every unreadable one at once
              -> Composition (composition.py)       Hydra puts the YAML files together; wrong options and unknown keys all at once
              -> instantiate                        each _target_ as its frozen dataclass; wrong types and ranges all at once

Hydra and OmegaConf are imported when something is composed: a part that only names `RunConfig` does not pay for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlm_lab.config.composition import Composition, Loaded
from mlm_lab.config.overrides import normalise
from mlm_lab.errors import InvalidFields, Problem, UserError
from mlm_lab.leaves import build
from mlm_lab.run_config import RunConfig

_SECRET = re.compile(
    r"\$\{\s*oc\.env\s*:\s*((?:\w*_)?(?:APIKEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_\w*)?)\s*[,}]", re.IGNORECASE
)


def compose(overrides: Sequence[str] = (), config_dir: Path | str | None = None, loaded: Loaded | None = None) -> RunConfig:
    """The checked config of these overrides ("objective.mask_ratio=0.4", "+experiment=quickstart").

    config_dir: a folder with further options (config_dir/model/mine.yaml), laid out like conf/.
    loaded: kept by the caller between compositions, which then read the YAML files once for all that choose the same options.
    Raises:
        UserError: every mistake of a kind at once: unreadable overrides; unknown options and keys; wrong types and ranges.
    """
    return instantiate(compose_values(overrides, config_dir, loaded), normalise(overrides))


def instantiate(values: Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """The config of composed values. Imports the components that they name.

    Raises:
        InvalidFields: every value of a wrong type or out of range, with its whole path.
    """
    problems: list[Problem] = []
    tasks = {name: build(task, f"task.{name}", problems) for name, task in values.get("task", {}).items()}
    root = {name: value for name, value in values.items() if name != "task"}
    config = build({**root, "tasks": tasks, "overrides": tuple(overrides)}, "", problems, cls=RunConfig)
    if problems:
        raise InvalidFields(problems)
    return config


def load(folder: Path) -> RunConfig:
    """The config that a run folder keeps.

    Raises:
        UserError: the file is damaged, or its keys are not those of this version of the program.
    """
    import yaml

    path = folder / "config.yaml"
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or not isinstance(values.get("task", {}), dict):
            raise UserError("the run's config is no mapping of keys", where=str(path))
        return instantiate(values)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError("the run's config cannot be read", where=str(path), given=str(error).partition("\n")[0]) from None
    except InvalidFields as error:
        raise UserError(
            "the run was made by a version of mlm_lab whose config has other keys",
            where=str(path),
            given=", ".join(problem.field for problem in error.problems),
            fix="use the version that summary.json names (git_commit), or pretrain again",
        ) from None


def compose_values(overrides: Sequence[str] = (), config_dir: Path | str | None = None, loaded: Loaded | None = None) -> dict[str, Any]:
    """The composed values, interpolations resolved, before any class is looked at.

    Raises:
        UserError: overrides that cannot be read, unknown options, unknown keys.
    """
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        config = Composition(overrides, config_dir, loaded).config
        _refuse_secrets(OmegaConf.to_container(config, resolve=False))
        return OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        lines = [line.strip() for line in str(error.__cause__ or error).splitlines() if line.strip()]
        raise UserError("the config cannot be composed: " + "\n  ".join(lines[:6])) from error


def _refuse_secrets(values: Any) -> None:
    """A config is written down and shown: what the environment keeps secret must not come into it."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            _refuse_secrets(value)
    elif isinstance(values, str) and (found := _SECRET.search(values)):
        raise UserError(
            "a secret of the environment would be written into the run's config",
            given=values,
            fix=f"leave it out: what needs {found[1]} reads it from the environment itself",
        )
