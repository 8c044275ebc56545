"""From a command line to a checked, frozen `RunConfig`. The one place, with __main__, that knows Hydra.

    overrides -> parse            every unreadable one at once
              -> compose          Hydra puts the YAML files together; wrong options and unknown keys all at once; imports nothing of ours
              -> instantiate      each _target_ as its frozen dataclass; wrong types and ranges all at once

Hydra and OmegaConf are imported when something is composed: a part that only names `RunConfig` does not pay for them.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm_lab.errors import InvalidFields, Problem, UserError, refuse
from mlm_lab.keys import dotted, holds, suggest, suggest_key
from mlm_lab.leaves import build
from mlm_lab.run_config import RunConfig

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

Loaded = dict[tuple[str, ...], Any]
"""Chosen options, in Hydra's spelling -> what their YAML files say together (OmegaConf's DictConfig)."""
BUDGETS = ("steps", "tokens", "flops", "hours")
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


def conf_dir() -> Path:
    """The YAML files: packaged as mlm_lab/conf in a wheel, conf/ beside the package in a checkout."""
    packaged = Path(__file__).parent / "conf"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[1] / "conf"


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
        config = _Composition(overrides, config_dir, loaded).config
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


def normalise(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides as they are recorded: without Hydra's own words, and each spelt in one way."""
    return tuple(_plain_word(override) for override in _parse(overrides) if not override.is_hydra_override())


def words_for_hydra(overrides: Sequence[str], config_dir: Path | str | None = None) -> list[str]:
    """The overrides, spelt so that Hydra's own multirun takes them: it refuses a key that an open mapping does not hold yet without `++`,
    and null as a group's option."""
    options, words = _Options(_make_loader(config_dir)), []
    for override in _parse(overrides):
        word, (key, _, value) = override.input_line, _plain_word(override).lstrip("+").partition("=")
        if options.is_group(key):
            word = options.word(key, re.sub(r"\bnull\b", "none", value))
        elif not override.is_hydra_override():
            word = f"++{key}={value}"
        words.append(word)
    return words


def _plain_word(override: Override) -> str:
    key, value = override.key_or_group, override.input_line.partition("=")[2]
    return f"{'+' if key == 'experiment' else ''}{key}={value}"


def first_values(overrides: Sequence[str]) -> list[str]:
    """The overrides of a multirun with the first of several values: one point of it, to check before any runs."""
    from hydra.core.override_parser.types import ValueType

    words = []
    for override in _parse(overrides):
        if override.is_sweep_override() and override.value_type != ValueType.GLOB_CHOICE_SWEEP:
            words.append(f"{override.input_line.partition('=')[0]}={next(iter(override.sweep_string_iterator()))}")
        else:
            words.append(override.input_line)
    return words


def each_value(word: str) -> tuple[str, list[str]]:
    """The key of an override, and every value that it gives: seed=0,1,2 -> seed, [0, 1, 2]; one value where it is no sweep.

    Raises UserError where it cannot be read.
    """
    from hydra.core.override_parser.types import ValueType

    (override,) = _parse([word])
    if override.is_sweep_override() and override.value_type != ValueType.GLOB_CHOICE_SWEEP:
        return override.key_or_group, list(override.sweep_string_iterator())
    key, _, value = _plain_word(override).partition("=")
    return key, [value]


class _Options:
    """The groups of conf/ and the options in each."""

    def __init__(self, loader: ConfigLoader):
        self._loader = loader
        self.groups = [name for name in loader.list_groups("") if name != "hydra"]

    def is_group(self, key: str) -> bool:
        return key in self.groups and key != "task"

    def of(self, group: str) -> list[str]:
        return self._loader.get_group_options(group)

    def word(self, group: str, option: str) -> str:
        """The choice in Hydra's spelling. Experiments are not in the defaults list and are added; an arm is added after them, because
        what is under test goes before the experiment's own choice."""
        return {"experiment": f"+experiment={option}", "arm": f"+arm@_global_={option}"}.get(group, f"{group}={option}")


class _Composition:
    """One composition of the YAML files and the overrides. `config` is the result; the mistakes on the way are told together."""

    def __init__(self, overrides: Sequence[str], config_dir: Path | str | None, loaded: Loaded | None):
        self._loaded = {} if loaded is None else loaded
        self._loader = _make_loader(config_dir)
        self._options = _Options(self._loader)
        self._mistakes: list[str] = []
        self._misnamed: set[str] = set()  # groups whose option is unknown: nobody can say which keys it would have
        parsed = [override for override in _parse(overrides) if not override.is_hydra_override()]
        self._values = [override for override in parsed if not self._options.is_group(override.key_or_group)]
        words = self._choose([override for override in parsed if self._options.is_group(override.key_or_group)])
        self.config = self._load(words)
        words = self._start_from(words)
        tasks = self._tasks()
        self._known = self._add_tasks(tasks, words)
        self._find_unknown_keys(tasks)
        refuse("not in the config", self._mistakes, "python -m mlm_lab --help shows every group, option and key")
        self._settle_budget()
        for override in self._values:
            self._set(override.key_or_group, override.value())
        for name, option in tasks.items():
            if option == "own":
                self._set(f"task.{name}.name", name)

    def _load(self, words: list[str]) -> DictConfig:
        from hydra.types import RunMode
        from omegaconf import OmegaConf

        if tuple(words) not in self._loaded:
            config = self._loader.load_configuration("config", words, RunMode.RUN, from_shell=False)
            OmegaConf.set_struct(config, False)
            self._loaded[tuple(words)] = config
        return copy.deepcopy(self._loaded[tuple(words)])

    def _start_from(self, words: list[str]) -> list[str]:
        """`pretrained` says what the model and the tokenizer are, unless the command line chooses them: they are taken from its folder.
        Returns the words with that choice."""
        given = {override.key_or_group: override.value() for override in self._values}
        folder = given.get("pretrained", self.config.get("pretrained"))
        start = Path(folder).expanduser() if isinstance(folder, str) else None
        model = None if start is None else _model_of(start)
        if model is None:
            return words
        takes_tokenizer = not any(word.startswith("tokenizer=") for word in words) and (start / "tokenizer.json").is_file()
        if takes_tokenizer:
            words = [*words, "tokenizer=pretrained"]
            self.config = self._load(words)
        if not any(word.startswith("model=") for word in words):
            if model.get("_target_") != self.config.model.get("_target_"):  # another class has other keys: an option that has them
                words = [*words, f"model={self._option_of(model, words)}"]
                self.config = self._load(words)
            self._set("model", model)
        if takes_tokenizer:
            self._set("tokenizer.path", folder)
        return words

    def _option_of(self, model: Mapping[str, Any], words: list[str]) -> str:
        """The first option of the group `model` that is of the same class."""
        targets = {option: self._load([*words, f"model={option}"]).model.get("_target_") for option in self._options.of("model")}
        return next((option for option, target in targets.items() if target == model.get("_target_")), next(iter(targets)))

    def _set(self, key: str, value: object) -> None:
        from omegaconf import OmegaConf

        OmegaConf.update(self.config, key, value, merge=True, force_add=True)

    def _choose(self, overrides: list[Override]) -> list[str]:
        """The groups' options in Hydra's spelling, arms last."""
        chosen: dict[str, list[str]] = {}
        for override in overrides:
            group, options = override.key_or_group, self._options.of(override.key_or_group)
            given = override.value() if isinstance(override.value(), list) else [override.value()]
            names = ["none" if name is None and "none" in options else name for name in given]
            unknown = [name for name in names if override.is_delete() or override.is_sweep_override() or name not in options]
            if unknown:
                self._misnamed.add(group)
                several = override.is_sweep_override()
                why = "several options need -m" if several else f"no such option{suggest(str(unknown[0]), options)} ({', '.join(options)})"
                self._mistakes.append(f"{override.input_line}: {why}")
            else:
                chosen[group] = [*chosen.get(group, []), *names] if group == "experiment" else names[-1:]
        arms = chosen.pop("arm", [])
        in_order = [*chosen.items(), *([("arm", arms)] if arms else [])]
        return [self._options.word(group, names[0] if len(names) == 1 else f"[{','.join(names)}]") for group, names in in_order]

    def _tasks(self) -> dict[str, str]:
        """evaluation.tasks: name -> its file in conf/task. A name of evaluation.files without one is the user's own task."""
        evaluation = self.config.get("evaluation") or {}
        names, files = evaluation.get("tasks") or [], set(evaluation.get("files") or {})
        for override in self._values:
            key, value = override.key_or_group, override.value()
            names = value if key == "evaluation.tasks" and not override.is_sweep_override() else names
            files |= set(value) if key == "evaluation.files" and isinstance(value, dict) else set()
            files |= {key.split(".")[2]} if key.startswith("evaluation.files.") else set()
        known = [name for name in self._options.of("task") if name != "own"] if "task" in self._options.groups else []
        tasks = {}
        for name in map(str, names if isinstance(names, Sequence) and not isinstance(names, str) else [] if names is None else [names]):
            if name in known or (name in files and name.isidentifier()):
                tasks[name] = name if name in known else "own"
            else:
                own = "; your own: evaluation.files.NAME=PATH" if name not in files else "; a name has letters, digits and _ only"
                near = suggest(name, [*known, *files])
                self._mistakes.append(f"evaluation.tasks: no such task as {name}{near} ({', '.join(known)}{own})")
        return tasks

    def _add_tasks(self, tasks: Mapping[str, str], words: list[str]) -> dict[str, Any]:
        """Put each task's file under config.task, below what an experiment sets for it. Returns the keys that the chosen options have, as
        they are without an experiment and an arm, which only set keys."""
        from omegaconf import OmegaConf

        choices, options = self.config.hydra.runtime.choices, self.config
        has_setters = choices.get("arm") is not None or any(word.startswith(("+experiment=", "+arm@")) for word in words)
        if tasks or has_setters:
            groups = [name for name in choices if self._options.is_group(name) and name not in ("experiment", "arm")]
            chosen = [f"{name}={choices[name]}" for name in groups if choices[name] is not None]
            options = self._load([*(f"+task@task.{name}={option}" for name, option in tasks.items()), *chosen])
        known = OmegaConf.to_container(options, resolve=False)
        del known["hydra"], self.config["hydra"]
        settings = self.config.pop("task", None) or {}
        if tasks:  # what an experiment sets for a task that this run leaves out is left out too
            self.config.task = OmegaConf.merge(options.task, {name: settings[name] for name in settings if name in tasks})
        return known

    def _find_unknown_keys(self, tasks: Mapping[str, str]) -> None:
        from omegaconf import OmegaConf

        every = list(dotted(self._known))
        for override in self._values:
            key, first = override.key_or_group, override.key_or_group.partition(".")[0]
            if first in self._misnamed:
                continue
            if key.startswith("task.") and key.split(".")[1] not in tasks:
                self._mistakes.append(f"{override.input_line}: {key.split('.')[1]} is not in evaluation.tasks")
            elif override.is_delete() or override.package is not None or not holds(self._known, key.split(".")):
                near = suggest_key(key, [*every, *self._options.groups])
                self._mistakes.append(f"{override.input_line}: no such key{near}")
            elif override.is_sweep_override():
                self._mistakes.append(f"{override.input_line}: several values need -m; a list is [a,b]")
        set_by_files = dotted(OmegaConf.to_container(self.config, resolve=False))
        unknown = [key for key in set_by_files if not holds(self._known, key.split("."))]
        outermost = [key for key in unknown if not any(key.startswith(f"{other}.") for other in unknown)]
        self._mistakes += [f"{key}, set by the experiment or arm: no such key{suggest_key(key, every)}" for key in outermost]

    def _settle_budget(self) -> None:
        """One budget given on the command line, or by an experiment, replaces the inherited one."""
        given = {override.key_or_group: override.value() for override in self._values}
        named = [name for name in BUDGETS if given.get(f"budget.{name}") is not None]
        if len(named) > 1:
            words = " ".join(f"budget.{name}={given[f'budget.{name}']}" for name in named)
            raise UserError("two budgets are given", given=words, allowed="exactly one of " + ", ".join(f"budget.{n}" for n in BUDGETS))
        budget, inherited = self.config.get("budget") or {}, self._known.get("budget") or {}
        changed = [name for name in BUDGETS if budget.get(name) is not None and budget[name] != inherited.get(name)]
        chosen = named or (changed if len(changed) == 1 else [])
        for name in BUDGETS:
            if chosen and name not in chosen and name in budget:
                self._set(f"budget.{name}", None)


def _model_of(start: Path) -> dict[str, Any] | None:
    """The model of a run folder or of a Hugging Face folder; None where it is neither (which the stages' checks say)."""
    import yaml

    from mlm_lab.interchange.folder import HuggingFaceFolder, is_hugging_face

    if is_hugging_face(start):
        return HuggingFaceFolder(start).model()
    try:
        model = yaml.safe_load((start / "config.yaml").read_text(encoding="utf-8"))["model"]
    except (OSError, yaml.YAMLError, TypeError, KeyError):
        return None
    return model if isinstance(model, dict) else None


def _make_loader(config_dir: Path | str | None) -> ConfigLoader:
    """Hydra's loader over conf/ and config_dir, without Hydra's global state: a job of a multirun may compose too."""
    from hydra import version
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_config_search_path
    from hydra.core.utils import setup_globals

    version.setbase("1.3")
    setup_globals()
    path = create_config_search_path(str(conf_dir()))
    if config_dir is not None:
        if not Path(config_dir).is_dir():
            raise UserError("--config-dir: there is no such folder", given=config_dir)
        path.prepend("command-line", f"file://{Path(config_dir).resolve()}", "schema")
    return ConfigLoaderImpl(path)


def _parse(overrides: Iterable[str]) -> list[Override]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser, parsed, unreadable = OverridesParser.create(), [], []
    for text in overrides:
        try:
            parsed.append(parser.parse_override(text))
        except HydraException as error:
            reason = "" if "=" not in text else f": {str(error).splitlines()[0]}"
            unreadable.append(f"{text}{reason}")
    hint = "key=value; a value with blanks, commas, brackets or other signs in two quotes: 'data.files=\"a (b).txt\"'"
    refuse("these words cannot be read", unreadable, hint)
    return parsed
