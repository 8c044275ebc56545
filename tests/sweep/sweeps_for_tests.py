"""Sweep files for tests: a small one that is right, changed by text."""

from __future__ import annotations

from pathlib import Path

from mlm_lab.sweep.reading import read
from mlm_lab.sweep.sweep_file import SweepFile

GOOD = """\
# a comment
program: mlm_lab
method: grid
metric: {name: probe/mlm_15_loss, goal: minimize}
description: |
  question: Which masking ratio serves best?
  primary: {metric: probe/mlm_15_loss, baseline: 0.15, contrast: 0.4}
  metrics: [val/loss]
  margin: 0.05
  ordered: true
parameters:
  objective.mask_ratio:
    values: [0.15, 0.4]
  seed:
    values: [0, 1, 2]
command: ["${env}", "${interpreter}", -m, mlm_lab, +experiment=tiny, study=good, trainer.precision=32-true, "${args_no_hyphens}"]
"""


def write(folder: Path, *changes: tuple[str, str], name: str = "good") -> Path:
    """The good file with each (old, new) replaced, which has to be there."""
    text = GOOD
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def sweep(folder: Path, *changes: tuple[str, str]) -> SweepFile:
    return read(write(folder, *changes))
