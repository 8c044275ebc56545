"""GLUE averages (traps.md 31), against rows that were published with their average."""

from __future__ import annotations

import pytest
import yaml

from mlm_lab.evaluation import glue_averages
from mlm_lab.evaluation.summary import describe
from tests.conftest import REPOSITORY

BERT_TABLE_1 = ("mnli_m", "mnli_mm", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
NINE_COLUMNS = {
    "mnli_m": "mnli/accuracy",
    "mnli_mm": "mnli/mismatched/accuracy",
    "qqp": "qqp/f1",
    "mrpc": "mrpc/f1",
    "qnli": "qnli/accuracy",
    "sst2": "sst2/accuracy",
    "cola": "cola/matthews",
    "stsb": "stsb/spearman",
    "rte": "rte/accuracy",
}
EIGHT_TASKS = {**NINE_COLUMNS, "qqp": "qqp/accuracy", "mrpc": "mrpc/accuracy"}
LEADERBOARD = {
    "cola/matthews": 60.5,
    "sst2/accuracy": 94.9,
    "mrpc/f1": 89.3,
    "mrpc/accuracy": 85.4,
    "stsb/pearson": 87.6,
    "stsb/spearman": 86.5,
    "qqp/f1": 72.1,
    "qqp/accuracy": 89.3,
    "mnli/accuracy": 86.7,
    "mnli/mismatched/accuracy": 85.9,
    "qnli/accuracy": 92.7,
    "rte/accuracy": 70.1,
    "wnli/accuracy": 65.1,
}
"""BERT-large's row of the leaderboard, as the tables of MT-DNN (arXiv 1901.11504) and XLM's README repeat it: 80.5."""


def row_of_table_1(values: str) -> dict[str, float]:
    return {NINE_COLUMNS[name]: float(value) for name, value in zip(BERT_TABLE_1, values.split(), strict=True)}


def test_trap_31_bert_base_and_large_as_in_their_table() -> None:
    """716.4 / 9 = 79.6 and 738.7 / 9 = 82.08."""
    assert glue_averages.nine_columns(row_of_table_1("84.6 83.4 71.2 90.5 93.5 52.1 85.8 88.9 66.4")) == pytest.approx(79.6)
    assert glue_averages.nine_columns(row_of_table_1("86.7 85.9 72.1 92.7 94.9 60.5 86.5 89.3 70.1")) == pytest.approx(82.0777, abs=1e-3)


def test_trap_31_electra_large_as_in_its_table() -> None:
    """ELECTRA's Table 2, 1.75M steps: 715.7 / 8 = 89.46, printed 89.5. The mismatched half of MNLI changes nothing."""
    names = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli_m", "qnli", "rte")
    row = dict(zip((EIGHT_TASKS[name] for name in names), (69.1, 96.9, 90.8, 92.6, 92.4, 90.9, 95.0, 88.0), strict=True))
    assert glue_averages.eight_tasks(row) == pytest.approx(89.4625)
    assert glue_averages.eight_tasks({**row, "mnli/mismatched/accuracy": 0.0}) == pytest.approx(89.4625)


def test_trap_31_the_leaderboard_counts_wnli_and_means_of_two_metrics() -> None:
    """60.5 + 94.9 + 87.35 + 87.05 + 80.7 + 86.3 + 92.7 + 70.1 + 65.1 = 724.7; / 9 = 80.52. By the other rules 82.1, 83.3."""
    assert glue_averages.official(LEADERBOARD) == pytest.approx(724.7 / 9)
    assert round(glue_averages.nine_columns(LEADERBOARD), 1) == 82.1
    assert round(glue_averages.eight_tasks(LEADERBOARD), 1) == 83.3
    with pytest.raises(KeyError, match="wnli"):
        glue_averages.official({name: value for name, value in LEADERBOARD.items() if name != "wnli/accuracy"})


@pytest.mark.parametrize(
    ("study", "average", "columns"),
    [
        ("bert_t1_glue_test", glue_averages.nine_columns, NINE_COLUMNS),
        ("electra_t2_large_dev", glue_averages.eight_tasks, EIGHT_TASKS),
        ("electra_small_owt_reproduction", glue_averages.eight_tasks, EIGHT_TASKS),
        ("electra_small_plus_test", glue_averages.eight_tasks, EIGHT_TASKS),
    ],
)
def test_trap_31_every_published_row_with_its_average(study, average, columns) -> None:
    file = REPOSITORY.parent / "shared/references/published_results.yaml"
    if not file.exists():
        pytest.skip("needs ../shared/references, which is not on this machine")
    (rows,) = (entry["rows"] for entry in yaml.safe_load(file.read_text(encoding="utf-8"))["studies"] if entry["id"] == study)
    assert rows
    for row in rows:
        published = row["values"].pop("average")
        ours = average({columns[name]: value for name, value in row["values"].items()})
        assert ours == pytest.approx(published, abs=0.06), row["factors"]  # the papers print one decimal


def results(**changes) -> dict:
    """metric -> numbers of two seeds, as the evaluate stage has them, of every task; the floor has three."""
    entries: dict[str, dict] = {}
    for name, value in LEADERBOARD.items():
        task, _, metric = name.partition("/")
        floor = {**describe([50.0, 50.0, 50.0]), "seeds": [0, 1, 2]}
        entries.setdefault(task, {})[metric] = {**describe([value, value + 9]), "seeds": [0, 1], "floor": floor}
    return entries | changes


def test_an_average_is_taken_seed_by_seed_and_for_the_floor() -> None:
    whole, lacking = glue_averages.average_all(results())
    assert lacking == {} and list(whole) == ["nine_columns", "eight_tasks", "official"]
    assert whole["official"]["values"] == [pytest.approx(724.7 / 9), pytest.approx(724.7 / 9 + 9)]
    assert (whole["official"]["floor"]["n"], whole["official"]["floor"]["mean"]) == (3, 50.0)


def test_what_is_incomplete_is_named_and_has_no_number() -> None:
    complete = results()
    without = {name: entry for name, entry in complete.items() if name != "wnli"}
    whole, lacking = glue_averages.average_all(without)
    assert "official" not in whole and lacking == {"official": ["wnli/accuracy"]}
    matched_alone = results(mnli={"accuracy": complete["mnli"]["accuracy"]})
    assert list(glue_averages.average_all(matched_alone)[0]) == ["eight_tasks"]


def test_seeds_that_differ_or_undefined_values_make_it_incomplete() -> None:
    one_seed = results(rte={"accuracy": {**describe([70.1]), "seeds": [0]}})
    assert glue_averages.average_all(one_seed)[1]["eight_tasks"] == ["rte/accuracy"]
    undefined = results(stsb={**results()["stsb"], "pearson": {**describe([0.1, None]), "seeds": [0, 1]}})
    assert glue_averages.average_all(undefined)[1] == {"official": ["stsb/pearson"]}
