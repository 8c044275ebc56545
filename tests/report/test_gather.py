"""Run folders as rows: what a row holds, which folders are left out, and that nothing is lost in results.csv."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mlm_lab.errors import UserError
from mlm_lab.report import results
from mlm_lab.report.gather import gather
from mlm_lab.report.rows import config_text, number, spelt_alike
from tests.report import synthetic


def test_a_row_has_who_what_it_took_and_every_number(tmp_path: Path) -> None:
    tasks = {"conll2003": {"test/f1": synthetic.entry([0.5, 0.7], floor=[0.2, 0.2, 0.5], collapsed=[1], protocol="fixed")}}
    folder = synthetic.write_run(tmp_path, seed=10, evaluation=tasks)
    (row,) = gather(tmp_path, "ratios").rows
    summary = json.loads((folder / "summary.json").read_text())
    assert row["config_hash"] == summary["config_hash"] and row["status"] == "finished" and row["seed"] == "10"
    assert row["config/objective.replace_mix"] == "[0.8, 0.1, 0.1]" and row["config/objective.duplicates"] == "null"
    assert row["config/budget.tokens"] == "3000000"  # 3e6 in YAML
    assert number(row, "probe/mlm_15_loss") == summary["metrics"]["probe/mlm_15_loss"]  # to the bit
    assert row["left_plateau"] == "true" and row["flops_head"] == repr(summary["flops"]["head"])
    measured = {name: cell for name, cell in row.items() if name.startswith("conll2003/test/f1")}
    assert float(measured.pop("conll2003/test/f1")) == pytest.approx(0.6)
    assert measured["conll2003/test/f1/n"] == "2" and measured["conll2003/test/f1/collapsed"] == "1"
    assert float(measured["conll2003/test/f1/floor"]) == pytest.approx(0.3) and measured["conll2003/test/f1/protocol"] == "fixed"


def test_how_a_task_was_measured_is_what_was_noted_with_its_numbers(tmp_path: Path) -> None:
    """config.yaml is of the last start, which may have measured another task in another way."""
    noted = {"pydocs_entities": {"digest": "01234567", "examples": "89abcdef"}}
    folders = [synthetic.write_run(tmp_path, seed=10, evaluation_settings=noted), synthetic.write_run(tmp_path, seed=11)]
    rows = gather(tmp_path, "ratios").rows
    assert {row["seed"]: row.get("pydocs_entities/examples") for row in rows} == {"10": "89abcdef", "11": None}
    before = {row["seed"]: row["pydocs_entities/settings"] for row in rows}
    assert before["10"] == "01234567" and len(before["11"]) == 8  # the second of before the digest was noted
    for folder in folders:
        config = (folder / "config.yaml").read_text(encoding="utf-8")
        (folder / "config.yaml").write_text(config.replace("epochs: 3", "epochs: 9"), encoding="utf-8")
    after = {row["seed"]: row["pydocs_entities/settings"] for row in gather(tmp_path, "ratios").rows}
    assert after["10"] == "01234567" and after["11"] != before["11"]


def test_what_does_not_enter_the_hash_is_no_config_column(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path, seed=10)
    (row,) = gather(tmp_path, "ratios").rows
    columns = {name.removeprefix("config/").split(".")[0] for name in row if name.startswith("config/")}
    assert columns.isdisjoint({"logger", "evaluation", "study", "stages", "task"}) and "config/seeds.finetune" not in row
    assert {name for name in row if name.startswith("config/trainer")} == {"config/trainer.compile"}


def test_runs_of_other_studies_are_not_gathered_and_shared_ones_are(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path, seed=10, study="other")
    shared = synthetic.write_run(tmp_path, seed=11, study="other", studies=["other", "ratios"])
    (tmp_path / "floors").mkdir()
    found = gather(tmp_path, "ratios")
    assert [row["config_hash"][:12] for row in found.rows] == [shared.name] and not found.damaged


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("summary.json", '{"status": "fini', "summary.json cannot be read"),
        ("summary.json", "[]", "not a mapping"),
        ("summary.json", '{"studies": ["ratios"]}', "no config_hash"),
        ("summary.json", json.dumps({"studies": ["ratios"], "config_hash": "0" * 64, "metrics": 3}), "shape"),
        ("config.yaml", "a: [", "config.yaml cannot be read (did not find expected node content"),
        ("config.yaml", "a: 1\nb: c: 2\n", "config.yaml cannot be read (mapping values are not allowed in this context, line 2)"),
        ("config.yaml", None, "config.yaml cannot be read"),
    ],
)
def test_a_damaged_folder_is_named_and_left_out(tmp_path: Path, file: str, text: str | None, reason: str) -> None:
    bad, good = synthetic.write_run(tmp_path, seed=10), synthetic.write_run(tmp_path, seed=11)
    (bad / file).unlink() if text is None else (bad / file).write_text(text, encoding="utf-8")
    found = gather(tmp_path, "ratios")
    assert [row["config_hash"][:12] for row in found.rows] == [good.name]
    assert [damage.folder for damage in found.damaged] == [bad.name] and reason in found.damaged[0].reason


def test_a_damaged_curve_leaves_the_row(tmp_path: Path) -> None:
    folder = synthetic.write_run(tmp_path, seed=10)
    (folder / "metrics.csv").write_text("step,val/loss\nten,4.2\n", encoding="utf-8")
    found = gather(tmp_path, "ratios")
    assert len(found.rows) == 1 and not found.curves and "its row is kept" in found.damaged[0].reason


def test_a_curve_has_the_validations_with_what_was_spent_by_then(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path, seed=10)
    ((_, curve),) = gather(tmp_path, "ratios").curves.items()
    assert len(curve) == 10 and int(curve[-1]["step"]) == synthetic.STEPS and float(curve[-1]["tokens"]) == synthetic.TOKENS
    assert float(curve[4]["tokens"]) == pytest.approx(synthetic.TOKENS / 2, rel=1e-3) and "train/loss" not in curve[0]


def test_a_curve_of_phases_has_what_its_rows_say_was_spent(tmp_path: Path) -> None:
    """Half of the steps, of short rows, is a fifth of the tokens."""
    folder = synthetic.write_run(tmp_path, seed=10)
    told = "step,val/loss,spent/tokens,spent/flops,spent/seconds\n846,5.0,600000.0,1e12,30.5\n1692,4.5,3000000.0,6e12,150.25\n"
    (folder / "metrics.csv").write_text(told, encoding="utf-8")
    ((_, curve),) = gather(tmp_path, "ratios").curves.items()
    assert [[float(line[name]) for name in ("tokens", "flops", "seconds")] for line in curve] == [[6e5, 1e12, 30.5], [3e6, 6e12, 150.25]]
    assert not any(name.startswith("spent/") for name in curve[0])


def test_rows_stay_when_their_folders_are_gone(tmp_path: Path) -> None:
    file = tmp_path / "results.csv"
    first = synthetic.write_run(tmp_path / "runs", seed=10)
    results.write(file, gather(tmp_path / "runs", "ratios").rows)
    before = results.read(file)
    shutil.rmtree(first)
    synthetic.write_run(tmp_path / "runs", seed=11)
    rows, conflicts = results.merge(results.read(file), gather(tmp_path / "runs", "ratios").rows)
    assert rows[0] == before[0] and [row["seed"] for row in rows] == ["10", "11"] and not conflicts


def test_an_evaluation_whose_folder_is_gone_stays_with_the_same_weights(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path, seed=10)
    known = gather(tmp_path, "ratios").rows
    synthetic.write_run(tmp_path, seed=10, status="running", evaluation={"cola": {"matthews": synthetic.entry([0.1])}})
    ((row,), _) = results.merge(known, gather(tmp_path, "ratios").rows)
    assert row["status"] == "finished" and row["cola/matthews"] == "0.1" and "pydocs_entities/f1" in row


def test_numbers_of_other_weights_are_never_mixed(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path, seed=10)
    known = gather(tmp_path, "ratios").rows
    synthetic.write_run(tmp_path, seed=10, weights_sha256="f" * 64, evaluation={})
    ((row,), conflicts) = results.merge(known, gather(tmp_path, "ratios").rows)
    assert row["weights_sha256"] == "f" * 64 and "pydocs_entities/f1" not in row and "other weights" in conflicts[0]
    synthetic.write_run(tmp_path, seed=10, weights_sha256=None, status="failed", evaluation={})
    ((row,), _) = results.merge(known, gather(tmp_path, "ratios").rows)
    assert row == known[0]  # a failed start takes nothing from a finished run


def test_results_read_back_as_they_were_written(tmp_path: Path) -> None:
    for seed in (10, 11):
        synthetic.write_run(tmp_path / "runs", seed=seed)
    rows = gather(tmp_path / "runs", "ratios").rows
    results.write(tmp_path / "results.csv", rows)
    assert results.read(tmp_path / "results.csv") == rows
    content = (tmp_path / "results.csv").read_bytes()
    results.write(tmp_path / "results.csv", results.read(tmp_path / "results.csv"))
    assert (tmp_path / "results.csv").read_bytes() == content


def test_a_file_that_is_no_table_of_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("arm,score\na,1\n", encoding="utf-8")
    with pytest.raises(UserError, match="no column config_hash"):
        results.read(tmp_path / "results.csv")


@pytest.mark.parametrize(
    ("given", "text"), [(0.4, "0.4"), ("0.40", "0.4"), ([0.8, 0.1, 0.1], "[0.8, 0.1, 0.1]"), ("[0.8,0.1,0.1]", "[0.8, 0.1, 0.1]")]
)
def test_a_value_has_one_spelling(given: object, text: str) -> None:
    assert spelt_alike(given) == text


def test_spellings_of_a_config() -> None:
    assert [config_text(value) for value in (3e6, 1, None, True, "token")] == ["3000000", "1", "null", "true", "token"]
    assert spelt_alike("1e-3") == config_text(0.001) and spelt_alike("null") == "null"


def test_a_published_model_that_was_evaluated_has_a_row_and_no_curve(tmp_path: Path) -> None:
    """It has trained nothing here, so that nothing of it is missing."""
    tasks = {"sst2": {"accuracy": synthetic.entry([0.9, 0.92], protocol="fixed")}}
    none = dict.fromkeys(("steps", "tokens", "positions", "seconds", "tokens_per_second", "flops", "weights_sha256"))
    folder = synthetic.write_run(tmp_path, seed=10, evaluation=tasks, config={"pretrained": "FOLDER"}, metrics={}, **none)
    (folder / "metrics.csv").unlink()
    found = gather(tmp_path, "ratios")
    assert not found.damaged and not found.curves
    assert float(found.rows[0]["sst2/accuracy"]) == pytest.approx(0.91) and found.rows[0]["config/pretrained"] == "FOLDER"


def test_a_row_has_what_hours_were_turned_into_steps_by(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path, seed=10, step_time={"key": "k" * 64, "seconds": 0.25})
    (row,) = gather(tmp_path, "ratios").rows
    assert (row["step_time/key"], row["step_time/seconds"]) == ("k" * 64, "0.25")
