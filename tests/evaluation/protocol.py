"""Settings of evaluation and of tasks for tests, read from conf/ as the program does, and changed."""

from __future__ import annotations

import importlib
from pathlib import Path

import yaml

from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import Task

CONF = Path(__file__).parents[2] / "conf"


def make(file: str, /, **changes):
    """The dataclass of conf/FILE.yaml with some fields changed."""
    return _build(yaml.safe_load((CONF / f"{file}.yaml").read_text()) | changes)


def _build(values: dict):
    values = {name: _build(value) if isinstance(value, dict) and "_target_" in value else value for name, value in values.items()}
    module, _, name = values.pop("_target_").rpartition(".")
    return getattr(importlib.import_module(module), name)(**values)


def evaluation(**changes) -> Evaluation:
    return make("evaluation/default", **changes)


def task(option: str, /, **changes) -> Task:
    return make(f"task/{option}", **changes)
