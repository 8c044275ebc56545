"""What the figures claim: an interval beyond the frame is marked, and no field is coloured whose verdict is barred."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import same_color
from matplotlib.figure import Figure

from mlm_lab.report.figures import COLOURS, _curve_column, plan
from mlm_lab.report.study import gather_known, read_study
from tests.report import synthetic


def paint(root: Path, file: str) -> tuple[Axes, str]:
    """A figure of the study, and its caption."""
    places = synthetic.places(root)
    study = read_study("ratios", places, {}, gather_known("ratios", places))
    (drawing,) = [drawing for drawing in plan(study.common, study.declaration, study.curves) if drawing.file == file]
    canvas = Figure(figsize=drawing.size)
    drawing.paint(canvas)
    return canvas.axes[0], drawing.caption


@pytest.mark.parametrize("loss", [1.0, 40.0])
def test_an_arm_with_a_run_on_the_plateau_has_no_colour(tmp_path: Path, loss: float) -> None:
    """However good its mean is, it is never called better; however bad, one run of three says little."""
    synthetic.write_study(tmp_path)
    stuck = {"probe/mlm_15_loss": loss, "left_plateau": False, "plateau_left_step": None}
    synthetic.write_run(tmp_path / "runs", seed=10, config={"objective.mask_ratio": 0.8}, metrics=stuck)
    axes, caption = paint(tmp_path, "differences.svg")
    fields = {(round(text.get_position()[0]), round(text.get_position()[1])): text.get_text() for text in axes.texts}
    hatched = {(round(patch.get_x() + 0.5), round(patch.get_y() + 0.5)) for patch in axes.patches if patch.get_hatch()}
    assert hatched == {(1, 0)}  # mask_ratio=0.8 by the probe; by F1 it is worse, which no such run bars
    assert fields[0, 0][-1] == "▲" and fields[1, 1][-1] == "▼" and not {"▲", "▼"} & set(fields[1, 0])
    assert axes.collections[0].get_array().reshape(2, 2).mask.tolist() == [[False, True], [False, False]] and "hatched" in caption


def test_a_verdict_of_worse_keeps_its_colour(tmp_path: Path) -> None:
    """Runs on the plateau bar better, not worse."""
    synthetic.write_study(tmp_path)
    for seed in (10, 11, 12):
        stuck = {"probe/mlm_15_loss": 6.4 + 0.01 * (seed % 2), "left_plateau": False, "plateau_left_step": None}
        synthetic.write_run(tmp_path / "runs", seed=seed, config={"objective.mask_ratio": 0.8}, metrics=stuck)
    axes, _ = paint(tmp_path, "differences.svg")
    texts = {text.get_text() for text in axes.texts if tuple(map(round, text.get_position())) == (1, 0)}
    assert [text[-1] for text in texts] == ["▼"] and axes.collections[0].get_array().reshape(2, 2)[0, 1] == -1.0
    assert [patch.get_hatch() for patch in axes.patches if (round(patch.get_x() + 0.46), round(patch.get_y() + 0.44)) == (1, 0)] == [None]


def test_the_curves_are_of_a_named_probe_where_the_primary_metric_has_none() -> None:
    table = SimpleNamespace(by_arm={"token": [{"config_hash": "0"}]})
    lines = {"0": [{"tokens": "1", "val/loss": "6", "probe/mlm_15_kept_loss": "1", "probe/mlm_15_loss": "6"}]}
    for metric, named, shown in [
        ("msra/f1", ("msra/f1", "val/loss", "probe/mlm_15_loss"), "probe/mlm_15_loss"),
        ("msra/f1", ("msra/f1",), "probe/mlm_15_loss"),
        ("val/loss", ("val/loss", "probe/mlm_15_loss"), "val/loss"),
    ]:
        assert _curve_column(table, SimpleNamespace(metric=metric, named=named), lines) == shown


@pytest.mark.parametrize("apart", [False, True])
def test_each_arm_has_its_own_floor_where_they_differ(tmp_path: Path, apart: bool) -> None:
    synthetic.write_study(tmp_path)
    for seed in (10, 11, 12):
        found = synthetic.entry([0.51], floor=[0.11 if apart else 0.32] * 3)
        config = {"objective.mask_ratio": 0.8}
        synthetic.write_run(tmp_path / "runs", seed=seed, config=config, evaluation={"pydocs_entities": {"f1": found}})
    axes, _ = paint(tmp_path, "scores.svg")
    dashed = [lines for lines in axes.collections if isinstance(lines, LineCollection) and same_color(lines.get_color()[0], COLOURS[1])]
    floors = [round(float(segment[0][1]), 3) for lines in dashed for segment in lines.get_segments()]
    assert (floors == [0.32, 0.32, 0.11]) is apart, floors


def test_the_curves_are_of_what_most_runs_have() -> None:
    table = SimpleNamespace(by_arm={"mlm": [{"config_hash": "0"}, {"config_hash": "1"}], "rtd": [{"config_hash": "2"}]})
    lines = {name: [{"tokens": "1", "probe/mlm_15_kept_loss": "1", "probe/mlm_15_loss": "6"}] for name in "01"}
    lines["2"] = [{"tokens": "1", "probe/mlm_15_generator_kept_loss": "1"}]
    assert _curve_column(table, SimpleNamespace(metric="pos_probe/accuracy", named=()), lines) == "probe/mlm_15_loss"


@pytest.mark.parametrize(
    ("budget", "spent", "name"),
    [("tokens", "tokens", "corpus tokens"), ("hours", "seconds", "seconds of training"), ("flops", "flops", "FLOPs")],
)
def test_curves_go_over_what_the_arms_were_matched_on(tmp_path: Path, budget: str, spent: str, name: str) -> None:
    synthetic.write_sweep(tmp_path)
    given = dict.fromkeys(("budget.tokens", "budget.hours", "budget.flops"), None) | {f"budget.{budget}": 0.125}
    for ratio in (0.15, 0.4):
        for seed in (10, 11):
            synthetic.write_run(tmp_path / "runs", seed=seed, config=given | {"objective.mask_ratio": ratio})
    axes, _ = paint(tmp_path, "curves.svg")
    curves = gather_known("ratios", synthetic.places(tmp_path)).curves
    assert axes.get_xlabel() == name
    assert sorted(max(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) > 2) == sorted(
        float(lines[-1][spent]) for lines in curves.values()
    )


def test_an_interval_that_leaves_the_frame_has_arrowheads(tmp_path: Path) -> None:
    """Of two seeds it is twelve times as wide as they lie apart, and without a mark would look like an axis."""
    synthetic.write_study(tmp_path, seeds=(10, 11))
    axes, caption = paint(tmp_path, "score.svg")
    low, high = axes.get_ylim()
    heads = {marker: [line.get_ydata()[0] for line in axes.lines if line.get_marker() == marker] for marker in "v^"}
    assert heads == {"v": [low] * 3, "^": [high] * 3} and "arrowhead" in caption


def test_an_interval_within_the_frame_has_none(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path, seeds=range(10, 22))
    axes, _ = paint(tmp_path, "score.svg")
    assert not [line for line in axes.lines if line.get_marker() in ("v", "^")]
