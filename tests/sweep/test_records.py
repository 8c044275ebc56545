"""What a study's table holds of runs whose folders may be gone."""

from __future__ import annotations

from pathlib import Path

from mlm_lab.config import compose
from mlm_lab.report.results import write
from mlm_lab.run_config import config_hash, evaluations_asked
from mlm_lab.sweep.records import finished_elsewhere

WORDS = ["budget.steps=9", "evaluation.tasks=[pydocs_topic]"]


def table(folder: Path, row: dict[str, str]) -> Path:
    write(folder / "results.csv", [row])
    return folder


def test_a_row_holds_an_evaluation_under_its_own_settings_alone(tmp_path: Path) -> None:
    config = compose(WORDS)
    run_hash = config_hash(config)
    evaluated = " ".join(digest[:12] for digest in evaluations_asked(run_hash, config).values())
    row = {"config_hash": run_hash, "status": "finished", "pydocs_topic/accuracy": "0.5", "evaluated": evaluated}
    held = finished_elsewhere(table(tmp_path, row))[run_hash]
    assert held.has_all_of(run_hash, config)
    for word in ("evaluation.seeds=5", "evaluation.epochs=9", "evaluation.tasks=[pydocs_topic,pydocs_entities]"):
        assert not held.has_all_of(run_hash, compose([*WORDS, word])), word
    assert held.has_all_of(run_hash, compose([*WORDS, "evaluation.seeds=5", "stages=[prepare,pretrain]"]))


def test_a_table_of_before_goes_by_the_names_of_tasks(tmp_path: Path) -> None:
    config = compose(WORDS)
    run_hash = config_hash(config)
    row = {"config_hash": run_hash, "status": "finished", "pydocs_topic/accuracy": "0.5"}
    held = finished_elsewhere(table(tmp_path, row))[run_hash]
    assert held.has_all_of(run_hash, config) and not held.has_all_of(run_hash, compose([*WORDS, "evaluation.tasks=[pydocs_entities]"]))
    assert finished_elsewhere(table(tmp_path, row | {"status": "failed"})) == {}
