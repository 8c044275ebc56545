"""Fair arms: the short runs, what is chosen from them, which points follow, and what it cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from mlm_lab.report.records import TUNE_JSON
from mlm_lab.sweep import tune
from mlm_lab.sweep.points import Point
from mlm_lab.sweep.records import Records
from mlm_lab.sweep.sweep_file import SweepFile
from tests.sweep.sweeps_for_tests import sweep

TUNE = "tune: {key: optim.peak_lr, values: [0.001, 0.002, 0.004], metric: val/loss, goal: minimize, seed: 9, budget_share: 0.25}"


def tuned_sweep(folder: Path) -> SweepFile:
    return sweep(folder, ("ordered: true", TUNE)).with_words([f"output_dir={folder}", "budget.tokens=1000"])


def finish(trial: Point, loss: float | None) -> None:
    ending = {"status": "finished", "metrics": {"val/loss": loss}} if loss is not None else {"status": "failed"}
    trial.folder.update_summary(tokens=100, flops={"total": 1e6, "head": 1.0}, seconds=2.0, **ending)


def test_the_short_runs_have_their_own_seed_study_and_share_of_the_budget(tmp_path: Path) -> None:
    found = tuned_sweep(tmp_path)
    tried = tune.trials(found.study.tune, found.points())
    assert list(tried) == ["mask_ratio=0.15", "mask_ratio=0.4"] and list(tried["mask_ratio=0.4"]) == ["0.001", "0.002", "0.004"]
    config = tried["mask_ratio=0.4"]["0.001"].config
    assert (config.objective.mask_ratio, config.optim.peak_lr, config.seed, config.budget.tokens) == (0.4, 0.001, 9, 250)
    assert config.study == "good.tuning" and config.stages == ("prepare", "pretrain") and config.seeds.init == 9
    assert len({trial.config_hash for arm in tried.values() for trial in arm.values()} | {p.config_hash for p in found.points()}) == 12


def choose(found: SweepFile, losses: dict[str, list[float | None]]) -> dict:
    tried = tune.trials(found.study.tune, found.points())
    for arm, values in losses.items():
        for trial, loss in zip(tried[arm].values(), values, strict=True):
            finish(trial, loss)
    return tune.choose(found.study.tune, found.points(), tried)


def test_each_arm_gets_its_best_value_and_shares_its_runs_where_that_is_the_common_one(tmp_path: Path) -> None:
    found = tuned_sweep(tmp_path)
    chosen = choose(found, {"mask_ratio=0.15": [3.0, 2.0, None], "mask_ratio=0.4": [3.0, 2.0, 1.0]})  # +experiment=tiny has 2e-3
    assert chosen["common"] == {"mask_ratio=0.15": 0.002, "mask_ratio=0.4": 0.002}
    assert {arm: (of_arm["best"], of_arm["shared"]) for arm, of_arm in chosen["arms"].items()} == {
        "mask_ratio=0.15": (0.002, True),
        "mask_ratio=0.4": (0.004, False),
    }
    assert chosen["arms"]["mask_ratio=0.15"]["scores"] == {"0.001": 3.0, "0.002": 2.0, "0.004": None}
    assert chosen["cost"] == {"runs": 6, "tokens": 600, "flops": 6e6, "seconds": 12.0}
    assert chosen["arms"]["mask_ratio=0.4"]["cost"] == {"runs": 3, "tokens": 300, "flops": 3e6, "seconds": 6.0}
    points = tune.tuned_points(chosen, found.points())
    shared, own = points[:3], points[3:]
    assert [point.config_hash for point in shared] == [point.config_hash for point in found.points()[:3]]
    assert {point.config.optim.peak_lr for point in own} == {0.004} and [point.seed for point in own] == [0, 1, 2]
    assert {point.tuned for point in shared} == {"optim.peak_lr=0.002"} and {point.tuned for point in own} == {"optim.peak_lr=0.004"}
    assert {point.config.study for point in points} == {"good"}


def test_an_arm_whose_short_runs_all_failed_is_in_no_tuned_table(tmp_path: Path) -> None:
    found = tuned_sweep(tmp_path)
    chosen = choose(found, {"mask_ratio=0.15": [None, None, None], "mask_ratio=0.4": [3.0, 2.0, 1.0]})
    assert chosen["arms"]["mask_ratio=0.15"]["best"] is None
    assert {point.arm for point in tune.tuned_points(chosen, found.points())} == {"mask_ratio=0.4"}


def test_tune_json_keeps_the_arms_of_an_earlier_call_that_was_tuned_alike(tmp_path: Path) -> None:
    found, records = tuned_sweep(tmp_path), Records(tmp_path, "good")
    chosen = choose(found, {"mask_ratio=0.15": [3.0, 2.0, None], "mask_ratio=0.4": [3.0, 2.0, 1.0]})
    tune.record(records, {**chosen, "arms": {"mask_ratio=0.15": chosen["arms"]["mask_ratio=0.15"]}})
    tune.record(records, {**chosen, "arms": {"mask_ratio=0.4": chosen["arms"]["mask_ratio=0.4"]}})
    path = records.path / TUNE_JSON
    assert json.loads(path.read_text()) == json.loads(json.dumps(chosen))
    tune.record(records, {**chosen, "seed": 8, "arms": {}})
    assert json.loads(path.read_text())["arms"] == {}


def test_what_the_studys_folder_has_chosen_is_taken_for_arms_of_these_short_runs(tmp_path: Path) -> None:
    found, folder = tuned_sweep(tmp_path), tmp_path / "experiments"
    settings, points, tried = found.study.tune, found.points(), tune.trials(found.study.tune, found.points())
    folder.mkdir()
    assert tune.chosen_before(settings, points, folder, tried) is None
    chosen = choose(found, {"mask_ratio=0.15": [3.0, 2.0, 2.5], "mask_ratio=0.4": [3.0, 2.0, 1.0]})
    (folder / TUNE_JSON).write_text(json.dumps(chosen))
    assert tune.chosen_before(settings, points, folder, tried) == json.loads(json.dumps(chosen))
    alone = tune.chosen_before(settings, points, folder, {"mask_ratio=0.4": tried["mask_ratio=0.4"]})
    assert list(alone["arms"]) == list(alone["common"]) == ["mask_ratio=0.4"] and alone["cost"]["runs"] == 3
    longer = tuned_sweep(tmp_path).with_words([f"output_dir={tmp_path}", "budget.tokens=2000"])
    assert tune.chosen_before(settings, points, folder, tune.trials(settings, longer.points())) is None
    assert tune.chosen_before(replace(settings, metric="probe/mlm_15_loss"), points, folder, tried) is None


def test_an_arm_without_a_score_is_tried_again_and_the_others_are_not(tmp_path: Path) -> None:
    found, folder = tuned_sweep(tmp_path), tmp_path / "experiments"
    chosen = choose(found, {"mask_ratio=0.15": [3.0, 2.0, 2.5], "mask_ratio=0.4": [3.0, 2.0, None]})
    folder.mkdir()
    (folder / TUNE_JSON).write_text(json.dumps(chosen))
    tried = tune.trials(found.study.tune, found.points())
    before = tune.chosen_before(found.study.tune, found.points(), folder, tried)
    assert list(before["arms"]) == ["mask_ratio=0.15"] and before["cost"]["runs"] == 3
    del chosen["arms"]["mask_ratio=0.15"]["runs"]
    (folder / TUNE_JSON).write_text(json.dumps(chosen))
    assert tune.chosen_before(found.study.tune, found.points(), folder, tried) is None, "it does not say of which runs"


def test_whether_a_recorded_rate_is_the_common_one_is_told_by_the_points(tmp_path: Path) -> None:
    """The common rate was changed since: the recorded one has runs of its own now."""
    found, folder = tuned_sweep(tmp_path), tmp_path / "experiments"
    chosen = choose(found, {"mask_ratio=0.15": [3.0, 2.0, 2.5], "mask_ratio=0.4": [3.0, 2.0, 1.0]})
    folder.mkdir()
    (folder / TUNE_JSON).write_text(json.dumps(chosen))
    changed = tuned_sweep(tmp_path).with_words([f"output_dir={tmp_path}", "budget.tokens=1000", "optim.peak_lr=0.001"])
    before = tune.chosen_before(found.study.tune, changed.points(), folder, tune.trials(found.study.tune, changed.points()))
    assert before["arms"]["mask_ratio=0.15"]["shared"] is False and before["common"]["mask_ratio=0.15"] == 0.001
    assert {point.config.optim.peak_lr for point in tune.tuned_points(before, changed.points()[:3])} == {0.002}
