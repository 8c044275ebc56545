"""Which arm a run belongs to: by the sweep runner's record, by the values of the factors, by what the arms compose to; searches."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm_lab.config import compose_values
from mlm_lab.report import setting
from mlm_lab.report.__main__ import main
from mlm_lab.report.figures import axis_values
from mlm_lab.report.study import Study, gather_known, read_study
from tests.report import synthetic


def read(root: Path) -> Study:
    places = synthetic.places(root)
    return read_study("ratios", places, {}, gather_known("ratios", places))


def test_by_the_values_of_the_factors(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    study = read(tmp_path)
    assert list(study.common.by_arm) == ["mask_ratio=0.15", "mask_ratio=0.4", "mask_ratio=0.8"]
    assert (study.declaration.baseline, study.declaration.contrast) == ("mask_ratio=0.15", "mask_ratio=0.4")
    assert axis_values(list(study.common.by_arm), study.declaration) == [0.15, 0.4, 0.8]
    assert setting.arms(study.common, study.declaration) is None, "their labels say it"


def test_the_records_of_the_runner_say_what_was_planned(tmp_path: Path) -> None:
    """key=value words after the sweep file left one arm out: nothing of it is missing."""
    folders = synthetic.write_study(tmp_path, ratios=(0.15, 0.4))
    assert len(read(tmp_path).declaration.planned["common"]) == 9
    synthetic.write_records(tmp_path, folders)
    study = read(tmp_path)
    assert len(study.declaration.planned["common"]) == 6 and list(study.declaration.arms) == ["mask_ratio=0.15", "mask_ratio=0.4"]


def test_arms_of_conf_by_what_they_compose_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As W&B's agents leave them: run folders without a record."""
    text = synthetic.SWEEP.replace("objective.mask_ratio: {values: [0.15, 0.4, 0.8]}", "arm: {values: [bert_80_10_10, bert_100_0_0]}")
    text = text.replace("baseline: 0.15, contrast: 0.4", "baseline: bert_80_10_10, contrast: bert_100_0_0")
    synthetic.write_sweep(tmp_path, text.replace("ordered: true", "factor: [arm]"))
    for arm in ("bert_80_10_10", "bert_100_0_0"):
        monkeypatch.setattr(synthetic, "CONFIG", {**compose_values(["+experiment=ablation", f"arm={arm}"])})
        for seed in (10, 11):
            synthetic.write_run(tmp_path / "runs", seed=seed)
    study = read(tmp_path)
    assert {arm: [row["config/objective.replace_mix"] for row in rows] for arm, rows in study.common.by_arm.items()} == {
        "bert_80_10_10": ["[0.8, 0.1, 0.1]"] * 2,
        "bert_100_0_0": ["[1, 0, 0]"] * 2,
    }
    assert study.common.primary is not None and study.common.primary.comparison is not None
    table = setting.arms(study.common, study.declaration)
    assert table is not None and (table.columns, table.rows) == (
        ["arm", "`objective.replace_mix`"],
        [["bert_80_10_10", "[0.8, 0.1, 0.1]"], ["bert_100_0_0", "[1, 0, 0]"]],
    )
    assert "masked, replaced by a random token, kept" in (table.note or "")


def test_a_search_has_the_arms_that_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = synthetic.SWEEP.replace("method: grid", "method: random\nrun_cap: 3").replace("  primary:", "  # primary:")
    synthetic.write_sweep(tmp_path, text.replace("{values: [0.15, 0.4, 0.8]}", "{min: 0.1, max: 0.9}"))
    for seed, ratio in enumerate((0.61, 0.17, 0.33)):
        synthetic.write_run(tmp_path / "runs", seed=seed % 2, config={"objective.mask_ratio": ratio})
    monkeypatch.chdir(tmp_path)
    assert main(["ratios"]) == 0
    study = read(tmp_path)
    assert list(study.common.by_arm) == ["mask_ratio=0.17", "mask_ratio=0.33", "mask_ratio=0.61"]
    report = (tmp_path / "experiments" / "ratios" / "report.md").read_text(encoding="utf-8")
    assert "**A search**: it compares nothing. The best of its 3 points by `probe/mlm_15_loss` is" in report
    assert "3 finished runs; no list of planned points is at hand" in report
    assert main(["ratios", "--verify"]) == 0
