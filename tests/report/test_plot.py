"""Curves of run folders, as a notebook shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import mlm_lab
from mlm_lab.errors import UserError


def write_run(folder: Path, ratio: float, seed: int, losses: list[float]) -> None:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"objective": {"mask_ratio": ratio}, "seed": seed, "seeds": {"init": seed}}))
    rows = [f"{10 * (n + 1)},{loss}," for n, loss in enumerate(losses)] + ["15,,0.5"]
    (folder / "metrics.csv").write_text("step,val/loss,train/loss\n" + "\n".join(rows) + "\n")


def test_a_line_for_each_run_named_by_what_tells_it_apart(tmp_path: Path) -> None:
    write_run(tmp_path / "runs/a", 0.15, 1, [5.0, 4.0])
    write_run(tmp_path / "runs/b", 0.4, 1, [5.0, 3.5])
    drawn = mlm_lab.plot(tmp_path / "runs")
    (axes,) = drawn.figure.axes
    assert [line.get_label() for line in axes.lines] == ["mask_ratio=0.15", "mask_ratio=0.4"]
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[10, 5], [20, 4]], [[10, 5], [20, 3.5]]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("optimiser step", "val/loss (nats)")
    assert drawn._repr_svg_().startswith("<?xml") and "mask_ratio=0.4" in drawn._repr_svg_()
    drawn.save(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes()[1:4] == b"PNG"
    alone = mlm_lab.plot(tmp_path / "runs/a", metric="train/loss").figure.axes[0]
    assert [line.get_label() for line in alone.lines] == ["a"]


def test_seeds_are_one_key(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"run{seed}", 0.15, seed, [5.0])
    labels = [line.get_label() for line in mlm_lab.plot(tmp_path / "run1", tmp_path / "run2").figure.axes[0].lines]
    assert labels == ["seed=1", "seed=2"]


def test_a_class_is_named_without_its_module(tmp_path: Path) -> None:
    """A label that begins with an underscore is left out of the legend."""
    for name in ("mlm.MLM", "rtd.RTD"):
        write_run(tmp_path / name, 0.15, 1, [5.0])
        values = {"objective": {"_target_": f"mlm_lab.objectives.{name}"}, "seed": 1}
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(values))
    axes = mlm_lab.plot(tmp_path).figure.axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["objective=MLM", "objective=RTD"]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run folder"):
        mlm_lab.plot(tmp_path)
    write_run(tmp_path / "a", 0.15, 1, [5.0])
    with pytest.raises(UserError, match=r"no run has val/los and step(.|\n)*val/loss, train/loss"):
        mlm_lab.plot(tmp_path / "a", metric="val/los")
