"""Times of steps that runs share: what tells them apart, and who comes first."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mlm_lab.config import compose
from mlm_lab.training import step_times
from mlm_lab.training.step_times import key_of, known, publish


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "text.txt").write_text("a text of a few words\n")
    return ["+experiment=tiny", "data=text", f"data.files={tmp_path}/text.txt"]


def test_steps_cost_the_same_where_nothing_that_is_computed_differs(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    key = key_of(compose(words), 1)
    ours = ("seed=5", "optim.peak_lr=0.1", "schedule=constant", "study=other", "budget.tokens=5e5", "tags=[one]")
    for word in (*ours, "trainer.timeout_seconds=9", "trainer.log_every_steps=3"):
        assert key_of(compose([*words, word]), 1) == key, word
    for word in (
        "objective.mask_ratio=0.3",
        "objective=rtd",
        "model.num_layers=1",
        "max_length=64",
        "batch_size=8",
        "trainer.compile=true",
    ):
        assert key_of(compose([*words, word]), 1) != key, word
    assert key_of(compose(words), 2) != key
    monkeypatch.setattr(step_times, "versions", lambda: {"torch": "another"})
    assert key_of(compose(words), 1) != key
    monkeypatch.undo()
    assert key_of(compose(words), 1) == key
    monkeypatch.setattr(step_times, "hardware", lambda: {"cpu": "another"})
    assert key_of(compose(words), 1) != key


def test_the_first_one_counts(tmp_path: Path) -> None:
    assert known(tmp_path, "k" * 64) is None
    found: list[float] = []
    threads = [threading.Thread(target=lambda s=s: found.append(publish(tmp_path, "k" * 64, float(s)))) for s in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and len(found) == 8 and known(tmp_path, "k" * 64) == found[0]
    assert publish(tmp_path, "l" * 64, 0.5) == 0.5


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"seconds": 0}', '{"seconds": NaN}', '{"seconds": "none"}'])
def test_a_damaged_file_is_none_and_written_anew(tmp_path: Path, content: str) -> None:
    publish(tmp_path, "k" * 64, 0.5)
    (file,) = (tmp_path / "step_times").glob("*.json")
    file.write_text(content)
    assert known(tmp_path, "k" * 64) is None and publish(tmp_path, "k" * 64, 0.25) == 0.25 == known(tmp_path, "k" * 64)
