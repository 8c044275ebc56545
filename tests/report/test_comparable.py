"""What may stand in one table: undeclared differences are refused with their keys; scales that differ are split or not compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm_lab.errors import UserError
from mlm_lab.report.comparable import columns_of, undeclared_differences, warnings
from mlm_lab.report.gather import gather
from mlm_lab.report.rows import Row
from mlm_lab.report.study import gather_known, read_study
from tests.report import synthetic

RATIO = ("objective.mask_ratio",)


def rows_of(tmp_path: Path, *configs: dict, **summary: object) -> list[Row]:
    for seed, config in enumerate(configs):
        synthetic.write_run(tmp_path, seed=seed, config=config, **summary)
    return gather(tmp_path, "ratios").rows


def test_declared_factors_seeds_and_hardware_may_differ(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {"objective.mask_ratio": 0.15}, {"objective.mask_ratio": 0.4})
    rows[0]["hardware/host"] = "another"
    assert undeclared_differences(rows, RATIO) == [] and undeclared_differences(rows, ["objective"]) == []


@pytest.mark.parametrize(
    ("key", "value"), [("optim.peak_lr", 0.004), ("objective.replace_mix", [1.0, 0.0, 0.0]), ("batch_size", 32), ("model.num_layers", 4)]
)
def test_any_other_key_is_named(tmp_path: Path, key: str, value: object) -> None:
    rows = rows_of(tmp_path, {}, {}, {key: value})
    (difference,) = undeclared_differences(rows, RATIO)
    assert difference.column == f"config/{key}" and f"{key}: " in str(difference) and "2 runs" in str(difference)


def test_the_tuned_key_may_differ_in_the_tuned_table_alone(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {}, {"optim.peak_lr": 0.004})
    assert undeclared_differences(rows, RATIO) and not undeclared_differences(rows, RATIO, "optim.peak_lr")


def test_precision_and_text_count_and_paths_do_not(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {}, {"data.validation_share": 0.1})
    assert undeclared_differences(rows, RATIO) == []  # one token store: what data says otherwise is where files lie
    rows[0]["fingerprints/store"] = "another"
    assert [found.column for found in undeclared_differences(rows, RATIO)] == ["config/data.validation_share", "fingerprints/store"]
    assert undeclared_differences(rows, ["data"]) == []
    rows[0]["precision"] = "32-true"
    assert [found.column for found in undeclared_differences(rows, ["data"])] == ["precision"]


def test_versions_and_commits_are_told(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {}, {})
    assert warnings(rows, None) == []
    rows[0]["versions/torch"] = "2.9.1"
    assert "versions/torch" in warnings(rows, None)[0] and "2.9.1 (1 run)" in warnings(rows, None)[0]


def test_arms_that_share_no_version_with_the_baseline_are_named(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {}, {}, {}, {}, {})
    for row, arm, commit in zip(rows, ("low", "low", "middle", "high", "high"), "aabbb", strict=True):
        row |= {"arm": arm, "git_commit": commit}
    assert warnings(rows, "low")[0].endswith("for a difference from the baseline: `high`, `middle`.")
    assert warnings(rows, "high")[0].endswith("for a difference from the baseline: `low`.")
    rows[1]["git_commit"] = "b"
    assert "baseline" not in warnings(rows, "low")[0], "a baseline with both has what each of the others has"
    rows[2]["git_commit"] = "c"
    assert warnings(rows, "low")[0].endswith("for a difference from the baseline: `middle`.")


def test_a_study_with_an_extra_differing_key_is_refused(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    synthetic.write_run(tmp_path / "runs", seed=13, config={"objective.mask_ratio": 0.4, "optim.peak_lr": 0.004})
    places = synthetic.places(tmp_path)
    with pytest.raises(UserError, match=r"optim.peak_lr: 0.002 \(9 runs\), 0.004 \(1 run\)"):
        read_study("ratios", places, {}, gather_known("ratios", places))


def test_two_runs_of_one_arm_and_seed_are_refused(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    synthetic.write_run(tmp_path / "runs", seed=10, config={"seeds.corruption": 99})
    places = synthetic.places(tmp_path)
    with pytest.raises(UserError, match="two runs of one seed") as refusal:
        read_study("ratios", places, {}, gather_known("ratios", places))
    assert "seeds.corruption" in str(refusal.value)


def by_arm(rows: list[Row]) -> dict[str, list[Row]]:
    return {f"arm {place}": [row] for place, row in enumerate(sorted(rows, key=lambda row: row["seed"]))}


def test_a_loss_under_each_arms_own_masks_is_not_compared(tmp_path: Path) -> None:
    rows = by_arm(rows_of(tmp_path, {"objective.mask_ratio": 0.15}, {"objective.mask_ratio": 0.4}))
    (own,), (probe,) = columns_of("val/loss", rows), columns_of("probe/mlm_15_loss", rows)
    assert "objective.mask_ratio" in (own.reason or "") and probe.reason is None


def test_duplicates_leave_the_held_out_masks_alone(tmp_path: Path) -> None:
    rows = by_arm(rows_of(tmp_path, {"objective.duplicates": 10}, {"objective.duplicates": None}))
    assert columns_of("val/loss", rows)[0].reason is None


def test_kinds_of_loss_never_share_a_column(tmp_path: Path) -> None:
    rows = by_arm(rows_of(tmp_path, {}, {"objective._target_": "mlm_lab.objectives.clm.CLM"}))
    columns = columns_of("val/loss", rows)
    assert [(column.label, column.arms) for column in columns] == [("val/loss (MLM)", ("arm 0",)), ("val/loss (CLM)", ("arm 1",))]
    assert len(columns_of("pydocs_entities/f1", rows)) == 1


def test_losses_of_two_vocabularies_never_share_a_column(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {}, {})
    rows[0]["fingerprints/tokenizer"] = "u" * 64
    for row in rows:
        row["probe/bits_per_character"] = "1.5"  # no metric's name says that it is measured on the same words
    for metric in ("probe/mlm_15_loss", "probe/bits_per_character"):
        assert len(columns_of(metric, by_arm(rows))) == 2


def test_protocols_are_not_mixed(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {}, {})
    rows[0]["pydocs_entities/f1/protocol"], rows[1]["pydocs_entities/f1/protocol"] = "paper", "fixed"
    assert "several protocols (fixed, paper)" in (columns_of("pydocs_entities/f1", by_arm(rows))[0].reason or "")
    rows[0]["pydocs_entities/f1/protocol"] = "fixed"
    rows[0]["pydocs_entities/settings"] = "00000000"
    assert "several settings" in (columns_of("pydocs_entities/f1", by_arm(rows))[0].reason or "")


def test_scores_on_other_examples_are_not_compared(tmp_path: Path) -> None:
    """Two machines whose files differ. A run that does not say which examples it had is believed."""
    rows = rows_of(tmp_path, {}, {}, {})
    rows[0]["pydocs_entities/examples"] = rows[1]["pydocs_entities/examples"] = "aa"
    assert columns_of("pydocs_entities/f1", by_arm(rows))[0].reason is None
    rows[2]["pydocs_entities/examples"] = "bb"
    assert "several sets of examples" in (columns_of("pydocs_entities/f1", by_arm(rows))[0].reason or "")


def test_what_is_ranked_within_an_objective_alone_is_split_by_it(tmp_path: Path) -> None:
    tasks = {"blimp": {"accuracy": synthetic.entry([0.6], within="objective")}}
    rows = by_arm(rows_of(tmp_path, {}, {"objective._target_": "mlm_lab.objectives.rtd.RTD"}, evaluation=tasks))
    assert [column.label for column in columns_of("blimp/accuracy", rows)] == ["blimp/accuracy (MLM)", "blimp/accuracy (RTD)"]


def test_what_is_ranked_within_a_setting_is_split_by_it(tmp_path: Path) -> None:
    tasks = {"held_out_text": {"bits_per_character": synthetic.entry([2.6], within="objective tokenizer.lowercase")}}
    settings = [{"tokenizer.lowercase": value} for value in (True, False)]
    rows = by_arm(rows_of(tmp_path, *settings, evaluation=tasks))
    assert [column.label for column in columns_of("held_out_text/bits_per_character", rows)] == [
        f"held_out_text/bits_per_character (MLM, tokenizer.lowercase={value})" for value in ("true", "false")
    ]
    alike = by_arm(rows_of(tmp_path / "alike", *[settings[0] | {"objective.mask_ratio": ratio} for ratio in (0.15, 0.4)], evaluation=tasks))
    assert [column.label for column in columns_of("held_out_text/bits_per_character", alike)] == ["held_out_text/bits_per_character"]


def test_a_published_model_brings_its_architecture_and_its_tokenizer() -> None:
    """With `pretrained` declared, what it chooses is declared too; anything else is not."""
    ours = {"config/pretrained": "null", "config/model.hidden_size": "128", "config/max_length": "128", "fingerprints/tokenizer": "a"}
    theirs = {"config/pretrained": "FOLDER", "config/model.config.model_type": "deberta-v2", "config/max_length": "128"}
    assert undeclared_differences([ours, theirs], ["pretrained"]) == []
    columns = [found.column for found in undeclared_differences([ours, theirs | {"config/max_length": "64"}], ["pretrained"])]
    assert columns == ["config/max_length"]
    assert undeclared_differences([ours, theirs], ["seed"])
