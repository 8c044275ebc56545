"""Published rows: every fact as it was collected, which arms they are, and why most of them are not comparable."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mlm_lab.errors import UserError
from mlm_lab.evaluation.glue_averages import AVERAGES
from mlm_lab.report.analysis import analyse
from mlm_lab.report.declaration import Declaration
from mlm_lab.report.gather import gather
from mlm_lab.report.published import TIMES_NOISE, PublishedStudy, beside, facts
from mlm_lab.report.published_tables import contrasts, reasons
from mlm_lab.report.rows import CONFIG
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


def test_the_spread_of_an_average_is_that_of_nothing_else() -> None:
    """A single task varies more than the average of many; SQuAD 2.0 is not the SQuAD that was measured."""
    every = [fact for study in facts()["studies"].values() for fact in study["metrics"].values()]
    averages = [fact for fact in every if fact["noise"] == "glue"]
    assert len(averages) == 6 and all("average" in fact["label"] and (fact["ours"] or "glue/").startswith("glue/") for fact in averages)
    assert {fact["label"] for fact in every if fact["noise"] == "squad_em"} == {"SQuAD EM"}


def test_an_average_of_ours_is_named_beside_the_published_one() -> None:
    every = [fact for study in facts()["studies"].values() for fact in study["metrics"].values()]
    ours = [fact for fact in every if (fact["ours"] or "").startswith("glue/")]
    assert {fact["label"] for fact in ours} == {f"GLUE average ({name})" for name in AVERAGES}
    assert all(fact["label"] == f"GLUE average ({fact['ours'].partition('/')[2]})" for fact in ours)


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
        "pilot_seeds": (),
    }
    return Declaration(**{**values, **changes})


def study_of(tmp_path: Path, protocol: str | None = "paper", **changes: object) -> PublishedStudy:
    """Beside three ratios and their single tasks."""
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
    return beside_runs(tmp_path, declaration(**changes))


def averages_of(tmp_path: Path, published: str, key: str, means: dict[object, float], average: str) -> PublishedStudy:
    """Beside runs that differ in one key and have a GLUE average. means: value of the key -> the average; the first is the baseline."""
    for place, (value, mean) in enumerate(means.items()):
        for seed in (10, 11, 12):
            tasks = {"glue": {average: synthetic.entry([mean + 0.001 * (seed - 11) + 0.0003 * ((seed * place) % 3)], protocol="paper")}}
            synthetic.write_run(tmp_path, seed=seed, config={key: value}, evaluation=tasks)
    arms = {f"{key.rpartition('.')[2]}={value}": {key: value} for value in means}
    first, second, *_ = arms
    changes = {"arms": arms, "factors": (key,), "baseline": first, "contrast": second, "metric": f"glue/{average}"}
    return beside_runs(tmp_path, declaration(published=(published,), metrics=(), **changes))


def beside_runs(runs: Path, declared: Declaration) -> PublishedStudy:
    (factor,) = declared.factors
    rows = gather(runs, "ratios").rows
    for row in rows:
        row["arm"] = f"{factor.rpartition('.')[2]}={row[CONFIG + factor]}"
    (study,) = beside(declared, analyse(rows, declared))
    return study


def objectives_of(tmp_path: Path) -> PublishedStudy:
    """RTD three points above MLM, as published (85.0 against 82.2)."""
    targets = {"mlm_lab.objectives.mlm.MLM": 0.60, "mlm_lab.objectives.rtd.RTD": 0.63}
    return averages_of(tmp_path, "electra_t5_efficiency", "objective._target_", targets, "eight_tasks")


def test_rows_find_their_arms_by_the_config(tmp_path: Path) -> None:
    arms = {row.name: row.arm for row in study_of(tmp_path).rows}
    assert arms["15 %"] == "mask_ratio=0.15" and arms["80 %"] == "mask_ratio=0.8" and arms["50 %"] is None


def test_why_single_tasks_are_not_compared(tmp_path: Path) -> None:
    found = {(contrast.metric, contrast.row): contrast for contrast in study_of(tmp_path).contrasts}
    assert found["MNLI", "80 %"].published == pytest.approx(-3.4) and found["MNLI", "80 %"].ours[0] == pytest.approx(-5.0, abs=0.1)
    assert found["MNLI", "80 %"].reason == "the spread of this score between pretraining runs is not known"
    assert "does not say which score" in found["QQP", "80 %"].reason
    assert found["QNLI", "80 %"].reason == found["SQuAD 1.1 F1", "80 %"].reason == "not measured here"


def test_an_average_beyond_the_noise_is_compared(tmp_path: Path) -> None:
    (contrast,) = objectives_of(tmp_path).contrasts
    assert contrast.reason is None and contrast.published == pytest.approx(2.8) and contrast.ours[0] == pytest.approx(3.0, abs=0.1)


def test_an_average_within_the_noise_is_not(tmp_path: Path) -> None:
    lengths = {3: 0.60, 2: 0.61, 10: 0.55}  # published: 83.49, 83.54, 82.85
    study = averages_of(tmp_path, "t5_t7_span_length", "objective.mean_span_length", lengths, "official")
    assert study.rows[1].arm == "mean_span_length=2" and len(study.contrasts) == 2 + 4  # SQuAD and SuperGLUE, not measured here
    found = {contrast.row: contrast for contrast in study.contrasts if contrast.metric == "GLUE average (official)"}
    assert "within the noise of two runs (0.65 points)" in found["mean length 10"].reason
    assert pytest.approx(0.651, abs=1e-3) == TIMES_NOISE * 0.235


def test_the_table_of_what_is_compared_says_the_direction(tmp_path: Path) -> None:
    study = objectives_of(tmp_path)
    (row,) = contrasts(study).rows
    assert row[1:3] == ["GLUE average (eight_tasks)", "+2.80"] and row[4] == "better" and row[5] == "the same"
    assert reasons([study]) == []


@pytest.mark.parametrize(("protocol", "shown"), [("fixed", "ours: fixed"), ("heldout", "ours: heldout"), (None, "ours: one setting")])
def test_another_protocol_is_not_compared(tmp_path: Path, protocol: str | None, shown: str) -> None:
    found = {(contrast.metric, contrast.row): contrast for contrast in study_of(tmp_path, protocol).contrasts}
    assert "other protocol" in found["MNLI", "80 %"].reason and shown in found["MNLI", "80 %"].reason


def test_without_our_baseline_nothing_is_compared(tmp_path: Path) -> None:
    study = study_of(tmp_path, published=("ankner_t1_schedules",))
    assert study.reason == "no row of it is an arm of this study" and not study.contrasts and contrasts(study) is None
    assert reasons([study]) == ["ankner_t1_schedules: no row of it is an arm of this study."]


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean wettig_mask_rate_sweep_large"):
        study_of(tmp_path, published=("wettig_mask_rate_sweep",))
