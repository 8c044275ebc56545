"""Probes and minimal pairs in the evaluate stage: one cell for each start, recorded, shared, never run twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlm_lab.evaluation.measures import linear_probe, minimal_pairs
from mlm_lab.run_config import to_yaml
from mlm_lab.run_folder import RunFolder
from mlm_lab.stages import evaluate
from mlm_lab.training.weights import fresh_module, save_weights
from tests.stages.evaluated_run import make_config

TASKS = "evaluation.tasks=[pos_probe,blimp]"


@pytest.fixture
def files(files: Path) -> Path:
    (files / "ner/conll2003").mkdir()
    for part, n in (("train", 60), ("valid", 20)):
        sentences = [f"the DT\nfilm NN\nis VBZ\n{('bad', 'good')[i % 2]} JJ\n{'xy'[i % 2] * (i + 1)} NN\n" for i in range(n)]
        (files / f"ner/conll2003/{part}.txt").write_text("\n".join(sentences))
    (files / "blimp").mkdir()
    pairs = [
        {"sentence_good": f"the film is {word}", "sentence_bad": f"film the {word} is", "UID": "order"} for word in ("good", "bad", "x")
    ]
    (files / "blimp/order.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    return files


@pytest.fixture
def measured(monkeypatch) -> list[str]:
    """The titles of what is measured."""
    titles = []
    for kind in (linear_probe.LinearProbe, minimal_pairs.MinimalPairs):
        original = kind.__call__
        monkeypatch.setattr(
            kind, "__call__", lambda self, subject, seed, original=original: titles.append(subject.title) or original(self, subject, seed)
        )
    return titles


def test_one_cell_for_each_start_and_none_twice(run, files, tmp_path, measured, capsys):
    _, folder = run
    evaluate.run(make_config(tmp_path, files, TASKS, "evaluation.seeds=3"), folder)
    found = folder.read_summary()["evaluation"]
    assert {entry["n"] for task in found.values() for entry in task.values()} == {1}
    assert {entry["floor"]["n"] for task in found.values() for entry in task.values()} == {3}
    assert list(found["pos_probe"]) == ["accuracy", "layer", "control_accuracy", "selectivity"]
    assert list(found["blimp"]) == ["accuracy", "pll_within_word/accuracy"]
    assert found["pos_probe"]["accuracy"]["baselines"].keys() == {"word_lookup"} and found["blimp"]["accuracy"]["baselines"] == {
        "shorter": 0.5
    }
    assert len(measured) == 2 * (1 + 3)
    assert "are not compared" in capsys.readouterr().out
    measured.clear()
    evaluate.run(make_config(tmp_path, files, TASKS, "seeds.finetune=4", "evaluation.seeds=1"), folder)
    assert [title for title in measured if "random" in title] == []
    assert folder.read_summary()["evaluation"]["pos_probe"] == found["pos_probe"]


def test_minimal_pairs_of_a_model_that_never_read_the_mask_token_are_undefined(run, files, tmp_path, tokenizer, capsys):
    """And its floor is not that of a model which has: nothing but the recipe tells the two apart."""
    _, with_masks = run
    without = make_config(tmp_path, files, "evaluation.tasks=[blimp]", "objective.replace_mix=[0.0,0.5,0.5]")
    folder = RunFolder(tmp_path / "runs" / "none")
    folder.record_start(to_yaml(without), ())
    tokenizer.save(folder.path)
    save_weights(fresh_module(without, tokenizer.vocabulary), folder.path)
    evaluate.run(without, folder)
    entry = folder.read_summary()["evaluation"]["blimp"]["accuracy"]
    assert (entry["n"], entry["mean"], entry["floor"]["mean"]) == (1, None, None)
    text = capsys.readouterr().out
    assert "undefined" in text and "never read the mask token" in text
    evaluate.run(make_config(tmp_path, files, "evaluation.tasks=[blimp]"), with_masks)
    entry = with_masks.read_summary()["evaluation"]["blimp"]["accuracy"]
    assert entry["mean"] is not None and entry["floor"]["mean"] is not None
