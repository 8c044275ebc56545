"""The README's objective in two files: what stands there is what is tested here, and it trains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlm_lab.objectives
from mlm_lab.config import compose
from mlm_lab.corruption.draws import Draws
from mlm_lab.types import IGNORE_INDEX
from tests.corruption.stores import keys_of, many_documents
from tests.training.tiny_run import QUICK, TINY, train

EXAMPLE = Path(__file__).parent / "example"
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the file lay in mlm_lab/objectives/."""
    monkeypatch.setattr(mlm_lab.objectives, "__path__", [*mlm_lab.objectives.__path__, str(EXAMPLE)])


def config_of(*words: str):
    return compose([*TINY, *QUICK, "objective=swapped_neighbours", *words], config_dir=EXAMPLE)


def test_the_readme_shows_both_files_whole() -> None:
    shown = README.read_text(encoding="utf-8")
    for file in (EXAMPLE / "swapped_neighbours.py", EXAMPLE / "objective" / "swapped_neighbours.yaml"):
        assert file.read_text(encoding="utf-8").strip() in shown, file.name
    assert len((EXAMPLE / "swapped_neighbours.py").read_text().splitlines()) <= 65


def test_its_batches_are_pure_and_hold_what_they_say() -> None:
    objective, store = config_of().objective, many_documents(80)
    plan = objective.plan(store, 63, Draws(0, "train"))
    index, epochs = list(range(10)), [0, 3] * 5
    batch = objective.make_batch(store, plan, keys_of(index, epochs))
    for row in range(10):
        alone = objective.make_batch(store, plan, keys_of(index[row : row + 1], epochs[row]))
        assert all((alone[name][0] == batch[name][row]).all() for name in batch)
    rows, slots = np.nonzero(batch["labels"] != IGNORE_INDEX)
    places = batch["label_positions"][rows, slots]
    partner = places ^ 1
    original = batch["input_ids"].copy()
    original[rows, places] = batch["labels"][rows, slots]
    assert (batch["input_ids"][rows, places] == original[rows, partner]).all() and 0.05 < len(rows) / batch["input_ids"].size < 0.25


def test_it_trains(tmp_path: Path) -> None:
    done = train(config_of("budget.steps=4"), tmp_path)
    assert done.module.step == 4 and done.recorder.latest["val/loss"] > 0
