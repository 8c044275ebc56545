"""The loss curve: what is drawn is what metrics.csv holds."""

from xml.etree import ElementTree

from mlm_lab.training.curve import draw_loss_curve


def test_the_figure_shows_training_probe_and_unigram(tmp_path) -> None:
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("step,train/loss,probe/mlm_15_loss\n10,5.0,\n20,4.0,4.5\n30,3.5,\n40,3.0,3.25\n")
    draw_loss_curve(metrics, {"metrics": {"unigram_loss": 6.5}}, tmp_path / "a.svg")
    draw_loss_curve(metrics, {"metrics": {"unigram_loss": 6.5}}, tmp_path / "b.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    ElementTree.fromstring(text)
    for words in ("training, the run's own masks", "held out, probe/mlm_15", "unigram on probe/mlm_15", "optimiser step"):
        assert f"<!-- {words} -->" in text
    assert "<!-- unigram" not in _drawn(metrics, {}, tmp_path / "c.svg")


def test_a_run_without_probes_has_a_curve_too(tmp_path) -> None:
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("step,train/loss\n10,5.0\n20,4.0\n")
    assert "held out" not in _drawn(metrics, {"metrics": {"unigram_loss": 6.5}}, tmp_path / "a.svg")


def _drawn(metrics, summary, figure) -> str:
    draw_loss_curve(metrics, summary, figure)
    return figure.read_text()
