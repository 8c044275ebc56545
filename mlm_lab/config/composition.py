"""The YAML files of the chosen options, put together by Hydra, and what the command line says about them. Imports nothing named there."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm_lab.config.options import Options, make_loader
from mlm_lab.config.overrides import parse
from mlm_lab.errors import UserError, refuse
from mlm_lab.keys import dotted, holds, suggest, suggest_key
from mlm_lab.training.budget import BUDGETS

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

Loaded = dict[tuple[str, ...], Any]
"""Chosen options, in Hydra's spelling -> what their YAML files say together (OmegaConf's DictConfig)."""


class Composition:
    """One composition of the YAML files and the overrides. `config` is the result; the mistakes on the way are told together."""

    def __init__(self, overrides: Sequence[str], config_dir: Path | str | None, loaded: Loaded | None):
        self._loaded = {} if loaded is None else loaded
        self._loader = make_loader(config_dir)
        self._options = Options(self._loader)
        self._mistakes: list[str] = []
        self._misnamed: set[str] = set()  # groups whose option is unknown: nobody can say which keys it would have
        parsed = [override for override in parse(overrides) if not override.is_hydra_override()]
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
