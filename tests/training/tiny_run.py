"""A small world in memory: text in which each token follows from the one before, a tiny model, and a run of a few steps.

Also a program, for tests that need processes of their own:   python -m tests.training.tiny_run FOLDER [override ...]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mlm_lab.config import compose
from mlm_lab.data.token_store import TokenStore
from mlm_lab.run_config import RunConfig
from mlm_lab.types import Vocabulary

SENTINELS = (60, 61, 62, 63)
VOCABULARY = Vocabulary(
    size=64,
    padded_size=72,
    pad_id=0,
    unk_id=1,
    cls_id=2,
    sep_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4, *SENTINELS),
    sentinel_ids=SENTINELS,
    fingerprint="test-vocabulary",
)
TINY = ["model.hidden_size=32", "model.num_heads=4", "model.num_layers=2", "model.intermediate_size=64"]
QUICK = ["trainer=cpu", "trainer.precision=32-true", "max_length=32", "batch_size=8", "validation.sequences=16", "stages=[pretrain]"]


@cache
def make_store(split: str, documents: int = 60) -> TokenStore:
    """Documents of 4-12 tokens a sentence; a token is mostly its predecessor plus one."""
    generator = np.random.default_rng([0, split == "train"])
    sentences = [generator.integers(4, 13) for _ in range(documents * 4)]
    tokens = []
    for length in sentences:
        token = int(generator.integers(5, 60))
        for _ in range(length):
            token = 5 + (token - 4) % 55 if generator.random() < 0.9 else int(generator.integers(5, 60))
            tokens.append(token)
    sentence_starts = np.append(0, np.cumsum(sentences))
    borders = np.unique(np.append([0, len(sentences)], generator.integers(1, len(sentences), documents)))
    return TokenStore.from_arrays(tokens, np.ones(len(tokens), bool), sentence_starts, borders, VOCABULARY, split)


def make_config(*overrides: str, steps: int = 8) -> RunConfig:
    """A tiny run of so many steps, changed by overrides."""
    budget = [] if any(word.startswith("budget.") for word in overrides) else [f"budget.steps={steps}"]
    return compose([*TINY, *QUICK, *budget, *overrides])


def make_course(config: RunConfig) -> Any:
    from mlm_lab.training.course import Course

    return Course(config, make_store("train"), make_store("validation", 20))


@dataclass
class Run:
    """What fit left behind."""

    module: Any
    recorder: Any
    checkpoints: Any
    trainer: Any


def train(config: RunConfig, folder: Path, *callbacks: Any) -> Run:
    """Run the steps that are left of a config in a folder, in this process."""
    from mlm_lab.training.callbacks import Checkpoints
    from mlm_lab.training.module import Pretraining
    from mlm_lab.training.plateau import PlateauWatch
    from mlm_lab.training.recorder import Recorder
    from mlm_lab.training.validation import HeldOut

    course = make_course(config)
    held_out = HeldOut(config.objective, course.validation, config.max_length, config.validation.sequences, config.batch_size)
    folder.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(folder / "metrics.csv", held_out, PlateauWatch.over(held_out, course.train))
    checkpoints = Checkpoints(folder / "checkpoints", recorder)
    module = Pretraining(course)
    trainer = config.trainer.build(folder=folder, loggers=[], callbacks=[recorder, checkpoints, *callbacks])
    trainer.fit(module)
    return Run(module, recorder, checkpoints, trainer)


if __name__ == "__main__":
    from mlm_lab.training.weights import save_weights

    out = Path(sys.argv[1])
    done = train(make_config(*sys.argv[2:]), out)
    if done.trainer.is_global_zero and done.module.step == done.module.total_steps:
        save_weights(done.module.module, out)
