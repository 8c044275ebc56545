"""Published rows: every fact as it was collected, which arms they are, and why most of them are not comparable."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mlm_lab.errors import UserError
from mlm_lab.report.analysis import analyse
from mlm_lab.report.declaration import Declaration
from mlm_lab.report.gather import gather
from mlm_lab.report.published import TIMES_NOISE, PublishedStudy, beside, facts
from mlm_lab.report.published_tables import contrasts, reasons
from tests.report import synthetic

REPOSITORY = Path(__file__).resolve().parents[2]
IDS = list(facts()["studies"])


def test_each_fact_is_as_it_was_collected(shared_data: Path) -> None:
    """Verified ones alone, with their numbers, splits and sources."""
    file = shared_data.parent / "references" / "published_results.yaml"
    if not file.exists():
        pytest.skip("needs ../shared/references, which is not on this machine")
    collected = {study["id"]: study for study in yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["studies"]}
    for name, study in facts()["studies"].items():
        origin = collected[name]
        assert origin["verified"] is True and origin["table"] in study["source"] and study["arxiv"] == origin["arxiv"]
        values = [row["values"] for row in origin["rows"]]
        for row in study["rows"]:
            assert any(row["values"].items() <= found.items() for found in values), (name, row["arm"])
        for metric, fact in study["metrics"].items():
            split = {"validation": "dev"}.get(origin["metrics"][metric]["split"], origin["metrics"][metric]["split"])
            assert fact["split"] == split and fact["unit"].startswith(origin["metrics"][metric]["unit"])


def test_the_noise_is_that_of_ten_runs() -> None:
    (std,) = [row["values"] for row in facts()["studies"]["t5_t1_baseline_noise"]["rows"] if "std" in row["arm"]]
    assert facts()["noise"]["std"] == {"glue": std["glue"], "squad_em": std["squad"]} == {"glue": 0.235, "squad_em": 0.343}


def test_every_table_that_a_shipped_sweep_names_is_there() -> None:
    for file in sorted((REPOSITORY / "sweeps").glob("*.yaml")):
        study = yaml.safe_load(yaml.safe_load(file.read_text(encoding="utf-8"))["description"])
        assert set(study.get("published") or []) <= set(IDS), file.name


def declaration(**changes: object) -> Declaration:
    arms = {"mask_ratio=0.15": {"objective.mask_ratio": 0.15}, "mask_ratio=0.4": {"objective.mask_ratio": 0.4}}
    values = {
        "name": "ratios",
        "question": "",
        "source": "sweeps/ratios.yaml",
        "factors": ("objective.mask_ratio",),
        "arms": {**arms, "mask_ratio=0.8": {"objective.mask_ratio": 0.8}},
        "planned": {},
        "baseline": "mask_ratio=0.15",
        "contrast": "mask_ratio=0.4",
        "metric": "mnli/accuracy",
        "higher_is_better": True,
        "metrics": ("qqp/f1", "sst2/accuracy", "qnli/accuracy"),
        "margin": None,
        "ordered": False,
        "tune": None,
        "published": ("wettig_mask_rate_sweep_large",),
    }
    return Declaration(**{**values, **changes})


def study_of(tmp_path: Path, protocol: str | None = "paper", **changes: object) -> PublishedStudy:
    marks = {"protocol": protocol} if protocol else {}
    for ratio, mnli in ((0.15, 0.60), (0.4, 0.61), (0.8, 0.55)):
        for seed in (10, 11, 12):
            score = mnli + 0.001 * (seed - 11) + 0.0003 * ((seed * ratio * 10) % 3)
            tasks = {
                "mnli": {"accuracy": synthetic.entry([score], **marks)},
                "qqp": {"f1": synthetic.entry([score], **marks)},
                "sst2": {"accuracy": synthetic.entry([score], **marks)},
            }
            synthetic.write_run(tmp_path, seed=seed, config={"objective.mask_ratio": ratio}, evaluation=tasks)
    rows = gather(tmp_path, "ratios").rows
    for row in rows:
        row["arm"] = f"mask_ratio={row['config/objective.mask_ratio']}"
    declared = declaration(**changes)
    (study,) = beside(declared, analyse(rows, declared))
    return study


def test_rows_find_their_arms_by_the_config(tmp_path: Path) -> None:
    arms = {row.name: row.arm for row in study_of(tmp_path).rows}
    assert arms["15 %"] == "mask_ratio=0.15" and arms["80 %"] == "mask_ratio=0.8" and arms["50 %"] is None


def test_what_is_compared_and_what_is_not(tmp_path: Path) -> None:
    found = {(contrast.metric, contrast.row): contrast for contrast in study_of(tmp_path).contrasts}
    assert found["MNLI", "80 %"].reason is None  # 80.8 against 84.2
    assert found["MNLI", "80 %"].published == pytest.approx(-3.4) and found["MNLI", "80 %"].ours[0] == pytest.approx(-5.0, abs=0.1)
    assert "within the noise of two runs (0.65 points)" in found["MNLI", "40 %"].reason  # 84.5 against 84.2
    assert pytest.approx(0.651, abs=1e-3) == TIMES_NOISE * 0.235
    assert "does not say which score" in found["QQP", "80 %"].reason
    assert found["QNLI", "80 %"].reason == found["SQuAD 1.1 F1", "80 %"].reason == "not measured here"


def test_the_table_of_what_is_compared_says_the_direction(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    table = contrasts(study)
    (mnli,) = [row for row in table.rows if row[1] == "MNLI"]
    assert mnli[0] == "mask_ratio=0.8" and mnli[2] == "-3.40" and mnli[4] == "worse" and mnli[5] == "the same"
    assert not any("MNLI of 80 %" in line for line in reasons([study])) and any("noise of two runs" in line for line in reasons([study]))


@pytest.mark.parametrize(("protocol", "shown"), [("fixed", "ours: fixed"), ("heldout", "ours: heldout"), (None, "ours: one setting")])
def test_another_protocol_is_not_compared(tmp_path: Path, protocol: str | None, shown: str) -> None:
    found = {(contrast.metric, contrast.row): contrast for contrast in study_of(tmp_path, protocol).contrasts}
    assert "other protocol" in found["MNLI", "80 %"].reason and shown in found["MNLI", "80 %"].reason


def test_scores_without_a_known_noise_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    studies = facts()["studies"]
    assert studies["bert_t8_mask_strategy"]["metrics"]["ner_finetune"]["noise"] is None
    monkeypatch.setitem(studies["wettig_mask_rate_sweep_large"]["metrics"]["mnli"], "noise", None)
    found = {(contrast.metric, contrast.row): contrast for contrast in study_of(tmp_path).contrasts}
    assert "is not known" in found["MNLI", "80 %"].reason


def test_without_our_baseline_nothing_is_compared(tmp_path: Path) -> None:
    study = study_of(tmp_path, published=("ankner_t1_schedules",))
    assert study.reason == "no row of it is an arm of this study" and not study.contrasts and contrasts(study) is None
    assert reasons([study]) == ["ankner_t1_schedules: no row of it is an arm of this study."]


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean wettig_mask_rate_sweep_large"):
        study_of(tmp_path, published=("wettig_mask_rate_sweep",))
