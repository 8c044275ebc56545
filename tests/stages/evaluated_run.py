"""The config of a run for tests of the evaluate stage, and where its cells lie."""

from __future__ import annotations

from pathlib import Path

from mlm_lab.config import compose
from mlm_lab.config.composition import Loaded
from mlm_lab.run_config import RunConfig
from mlm_lab.run_folder import RunFolder

MODEL = ("hidden_size=32", "num_heads=4", "num_layers=1", "intermediate_size=64", "initializer_range=0.05")
LOADED: Loaded = {}
"""The YAML files are read once for all of the tests."""


def make_config(tmp_path: Path, files: Path, *overrides: str) -> RunConfig:
    words = [f"model.{word}" for word in MODEL] + [f"evaluation.data_dir={files}", f"output_dir={tmp_path / 'runs'}", "stages=[evaluate]"]
    words += [f"cache_dir={tmp_path / 'cache'}", "evaluation.jobs=1"]
    words += ["trainer=cpu", "trainer.precision=32-true", "max_length=16", "evaluation.seeds=2", "evaluation.learning_rate=0.005"]
    return compose(["evaluation.tasks=[sst2]", *words, *overrides], loaded=LOADED)


def cell_of(folder: RunFolder, seed: int) -> Path:
    (file,) = folder.path.glob(f"evaluation/*/seed_{seed}-*/pretrained/result.json")
    return file


def floor_of(config: RunConfig, init: int) -> Path:
    (file,) = config.output_dir.glob(f"floors/*/init_{init}-*/result.json")
    return file
