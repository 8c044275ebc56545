"""The loss curve: what is drawn is what metrics.csv holds."""

import re
from xml.etree import ElementTree

from mlm_lab.training.curve import draw_loss_curve

BASELINES = {"unigram_loss": 6.5, "neighbour_loss": 4.8, "plateau_mark": 6.1}


def test_the_figure_shows_training_probes_and_baselines(tmp_path) -> None:
    metrics = tmp_path / "metrics.csv"
    probe = "probe/mlm_15_loss,probe/mlm_15_masked_loss,probe/mlm_15_kept_loss,probe/mlm_40_loss,probe/mlm_40_masked_loss"
    metrics.write_text(f"step,train/loss,{probe}\n10,5.0\n20,4.0,4.5,4.7,1,5,5.2\n30,3.5\n40,3.0,3.25,3.5,1,4,4.2\n")
    summary = {"metrics": {**BASELINES, "plateau_left_step": 12, "left_plateau": True}}
    text = _drawn(metrics, summary, tmp_path / "a.svg")
    assert text == _drawn(metrics, summary, tmp_path / "b.svg")
    ElementTree.fromstring(text)
    lines = ["training, the run's own task", "held out, probe/mlm_15", "held out, probe/mlm_40", "held out, probe/mlm_15_masked"]
    marks = ["unigram", "neighbouring tokens", "plateau is left below", "left by step 12"]
    assert _words(text) >= {*lines, *marks, "optimiser step"} and "held out, probe/mlm_15_kept" not in _words(text)
    stuck = _words(_drawn(metrics, {"metrics": {**BASELINES, "plateau_left_step": None}}, tmp_path / "c.svg"))
    assert stuck >= {*lines, *marks[:3]} and marks[3] not in stuck
    assert _words(_drawn(metrics, {}, tmp_path / "d.svg")).isdisjoint(marks)


def test_a_recipe_that_never_masks_has_what_its_probe_has(tmp_path) -> None:
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("step,train/loss,probe/mlm_15_random_loss,probe/mlm_15_kept_loss\n10,5.0,6,1\n20,4.0,5,1\n")
    words = _words(_drawn(metrics, {}, tmp_path / "a.svg"))
    assert words >= {"held out, probe/mlm_15_random", "held out, probe/mlm_15_kept"}


def test_a_run_without_probes_has_its_own_held_out_loss(tmp_path) -> None:
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("step,train/loss,val/loss\n10,5.0,5.1\n20,4.0,4.1\n")
    assert _words(_drawn(metrics, {"metrics": BASELINES}, tmp_path / "a.svg")) >= {"held out, val", "unigram"}
    metrics.write_text("step,train/loss,val/loss,val/span_text_loss\n10,5.0,5.1,5.2\n20,4.0,4.1,4.5\n")
    assert "held out, val/span_text" in _words(_drawn(metrics, {}, tmp_path / "b.svg"))


def _words(svg: str) -> set[str]:
    """Matplotlib writes each text as a comment before its glyphs."""
    return set(re.findall("<!-- (.*) -->", svg))


def _drawn(metrics, summary, figure) -> str:
    draw_loss_curve(metrics, summary, figure)
    return figure.read_text()
