"""What the tests of the stages share: a run whose pretraining is over, and tasks that a word decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlm_lab.evaluation import finetune as finetuning
from mlm_lab.run_config import to_yaml
from mlm_lab.run_folder import RunFolder
from mlm_lab.training.weights import fresh_module, save_weights
from tests.evaluation.conftest import tokenizer  # noqa: F401  the fixture
from tests.stages.evaluated_run import make_config

WORDS = ("the", "film", "is", "x")


@pytest.fixture
def files(tmp_path) -> Path:
    """A GLUE task and a NER task that a word decides."""
    generator = np.random.default_rng(0)
    for part, n in (("train", 128), ("dev", 40)):
        sentences = [[*generator.choice(WORDS, size=3), ("bad", "good")[i % 2]] for i in range(n)]
        folder = tmp_path / "data/glue/SST-2"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{part}.tsv").write_text("sentence\tlabel\n" + "".join(f"{' '.join(s)}\t{i % 2}\n" for i, s in enumerate(sentences)))
        folder = tmp_path / "data/ner/wnut17"
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["".join(f"{w} {'B-X' if w == 'good' else 'O'}\n" for w in s) for s in sentences]
        (folder / f"{part}.txt").write_text("\n".join(lines))
    return tmp_path / "data"


@pytest.fixture
def run(tmp_path, files, tokenizer):  # noqa: F811
    """(config, folder) of a run whose pretraining is over."""
    config = make_config(tmp_path, files)
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.record_start(to_yaml(config), ())
    tokenizer.save(folder.path)
    save_weights(fresh_module(config, tokenizer.vocabulary), folder.path)
    return config, folder


@pytest.fixture
def trained(monkeypatch) -> list[str]:
    """The titles of the cells that are trained."""
    titles = []
    original = finetuning.finetune

    def count(*arguments):
        titles.append(arguments[-1])
        return original(*arguments)

    monkeypatch.setattr(finetuning, "finetune", count)
    return titles
