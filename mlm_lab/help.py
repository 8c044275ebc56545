"""The text of --help, read from the YAML files and the classes' docstrings, so that it cannot disagree with them.

--help                 groups with their options, experiments, keys of the root
--help GROUP[=OPTION]  the option's keys, with their defaults and what they mean
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from mlm_lab.config.options import header
from mlm_lab.errors import UserError
from mlm_lab.keys import suggest
from mlm_lab.leaves import find_class

USAGE = """python -m mlm_lab [group=option] [key=value] [+experiment=NAME]
Prepare a text, pretrain an encoder on it, evaluate it.

  --help [GROUP[=OPTION]]   this text; or the keys of an option
  --cfg job                 print the composed config and stop
  --config-dir DIR          a folder with your own options, laid out like conf/ (DIR/model/mine.yaml)
  -m                        run every combination of values: -m seed=0,1,2 objective.mask_ratio=0.15,0.4
                            on a cluster, a job each: -m hydra/launcher=submitit_slurm hydra.launcher.partition=gpu seed=0,1,2
                            (pip install 'mlm_lab[slurm]'; submitit_local runs the jobs on this machine)
  stages=[plan]             what the run would take: size, memory, time. Nothing is trained

Doors (each has a --help of its own)
  python -m mlm_lab          one run, or with -m several
  python -m mlm_lab.sweep    a file of runs that answer a question, with or without an account
  python -m mlm_lab.report   its tables, figures and verdict, from the run folders
  python -m mlm_lab.export   a run as a Hugging Face folder

The same command again resumes an interrupted run, or shows a finished one.
Sizes may be written 10_000_000 or 1e7. Quote what the shell would read: 'objective.replace_mix=[1,0,0]'.
"""
KEY_WIDTH = 40
"""A key that is longer has its meaning behind it, out of the column."""


def overview(folders: list[Path]) -> str:
    """Everything that can be chosen, a line each."""
    root = folders[0] / "config.yaml"
    defaults = _defaults(root)
    lines = [USAGE, "Groups (* is the default)"]
    for group, default in defaults.items():
        lines += ["", f"{group}="]
        lines += _entries(folders, group, default)
    lines += ["", "+experiment=", *_entries(folders, "experiment", None)]
    lines += ["", "evaluation.tasks=[...]", *(line for line in _entries(folders, "task", None))]
    lines += ["", "Keys (--help GROUP shows those of a group)", ""]
    lines += _root_keys(root)
    return "\n".join(lines)


def option(folders: list[Path], word: str) -> str:
    """The keys of one option: name, default, meaning.

    Raises:
        UserError: there is no such group or option.
    """
    import yaml

    group, _, name = word.lstrip("+").partition("=")
    defaults = _defaults(folders[0] / "config.yaml")
    name = name or defaults.get(group) or ""
    found = [path for folder in folders for path in folder.glob(f"{group}/{name}.yaml")]
    if not found:
        groups = [path.name for path in sorted(folders[0].iterdir()) if path.is_dir()]
        options = sorted(path.stem for folder in folders for path in folder.glob(f"{group}/*.yaml")) if group in groups else groups
        near = suggest(name if group in groups else group, options)
        raise UserError(f"--help: there is no such option{near}", given=word, allowed=", ".join(options))
    values = yaml.safe_load(found[0].read_text(encoding="utf-8")) or {}
    lines = [f"{group}={name}  {header(found[0])}", ""]
    if "_target_" not in values:
        return "\n".join([*lines, found[0].read_text(encoding="utf-8")])
    return "\n".join([*lines, *_keys(values, f"task.{name}" if group == "task" else group)])


def _keys(values: dict[str, Any], prefix: str) -> Iterator[str]:
    """The keys of an option, and those of its own parts below them."""
    meaning = dict(field_docs(find_class(values["_target_"], prefix)))
    for key, value in values.items():
        if isinstance(value, dict) and "_target_" in value:
            yield from _keys(value, f"{prefix}.{key}")
        elif key != "_target_":
            yield f"{prefix}.{key}={_word(value)}"
            yield from textwrap.wrap(meaning.get(key, ""), 116, initial_indent="    ", subsequent_indent="    ")


def field_docs(cls: type) -> Iterator[tuple[str, str]]:
    """(field, the docstring under it), base classes first."""
    names = {field.name for field in fields(cls)}
    for base in reversed(cls.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body
        for statement, after in pairwise(body):
            is_field = isinstance(statement, ast.AnnAssign) and statement.target.id in names
            if is_field and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                yield statement.target.id, " ".join(after.value.value.split())


def _defaults(root: Path) -> dict[str, str | None]:
    import yaml

    entries = yaml.safe_load(root.read_text(encoding="utf-8"))["defaults"]
    return {group: name for entry in entries if isinstance(entry, dict) for group, name in entry.items()}


def _entries(folders: list[Path], group: str, default: str | None) -> list[str]:
    found = sorted({path for folder in folders for path in folder.glob(f"{group}/*.yaml")})
    width = max((len(path.stem) for path in found), default=0)
    return [f"  {'*' if path.stem == default else ' '} {path.stem:{width}}  {header(path)}" for path in found] or ["    (none)"]


def _root_keys(root: Path) -> list[str]:
    """The keys of config.yaml as they stand there, and their comments in a column."""
    text = root.read_text(encoding="utf-8")
    body = text[text.index("\nmax_length") :].strip("\n")
    entries = [line.partition(" # ") for line in body.splitlines() if line.strip() and "_target_" not in line]
    width = max(len(key) for key, _, meaning in entries if meaning and len(key) <= KEY_WIDTH)
    return [f"  {key:{width}}  {meaning}".rstrip() for key, _, meaning in entries]


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return "[" + ",".join(map(_word, value)) + "]" if isinstance(value, list) else str(value)
