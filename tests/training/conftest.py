"""A small world in memory: text in which each token follows from the one before, a tiny model, and a run of a few steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlm_lab.config import RunConfig, compose
from mlm_lab.data.token_store import TokenStore
from mlm_lab.types import Vocabulary

VOCABULARY = Vocabulary(
    size=60,
    padded_size=64,
    pad_id=0,
    unk_id=1,
    cls_id=2,
    sep_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4),
    sentinel_ids=(),
    fingerprint="test-vocabulary",
)
TINY = ["model.hidden_size=32", "model.num_heads=4", "model.num_layers=2", "model.intermediate_size=64"]
QUICK = ["trainer=cpu", "trainer.precision=32-true", "max_length=32", "batch_size=8", "validation.sequences=16", "stages=[pretrain]"]


def make_store(split: str, documents: int = 60, seed: int = 0) -> TokenStore:
    """Documents of 2-5 sentences of 4-12 tokens; a token is mostly its predecessor plus one."""
    generator = np.random.default_rng([seed, split == "train"])
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


@pytest.fixture(scope="session")
def stores() -> tuple[TokenStore, TokenStore]:
    return make_store("train"), make_store("validation", documents=20)


@pytest.fixture(scope="session")
def make_config() -> Callable[..., RunConfig]:
    """A tiny run of so many steps, changed by overrides."""

    def make(*overrides: str, steps: int = 8) -> RunConfig:
        return compose([*TINY, *QUICK, f"budget.steps={steps}", *overrides])

    return make


@dataclass
class Run:
    """What a call of fit left behind."""

    module: Any
    recorder: Any
    checkpoints: Any
    folder: Path


@pytest.fixture(scope="session")
def train(stores: tuple[TokenStore, TokenStore]) -> Callable[..., Run]:
    """Run the steps that are left of a config in a folder, in this process, on the stores in memory."""

    def run(config: RunConfig, folder: Path, callbacks: tuple[Any, ...] = ()) -> Run:
        from mlm_lab.training.callbacks import Checkpoints, Recorder
        from mlm_lab.training.course import Course
        from mlm_lab.training.module import Pretraining
        from mlm_lab.training.validation import HeldOut, unigram_baseline

        course = Course(config, *stores)
        held_out = HeldOut(config.objective, course.validation, config.max_length, config.validation.sequences, config.batch_size)
        folder.mkdir(parents=True, exist_ok=True)
        recorder = Recorder(folder / "metrics.csv", held_out, unigram_baseline(course.train, held_out.labels(held_out.probe)))
        checkpoints = Checkpoints(folder / "checkpoints", recorder)
        module = Pretraining(course)
        trainer = config.trainer.build(folder=folder, loggers=[], callbacks=[recorder, checkpoints, *callbacks])
        trainer.fit(module)
        return Run(module, recorder, checkpoints, folder)

    return run


@pytest.fixture(scope="session")
def set_field() -> Callable[..., Any]:
    """A config with one part exchanged: set_field(config, model=...)."""
    return replace
