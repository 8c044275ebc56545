"""Bad input that only the config shows: refused before the first run, with the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm_lab.errors import UserError
from mlm_lab.sweep import logged_metrics
from mlm_lab.sweep.check import check, corners
from tests.sweep.sweeps_for_tests import sweep

RATIO = "  objective.mask_ratio:\n    values: [0.15, 0.4]\n"
PRIMARY = "  primary: {metric: probe/mlm_15_loss, baseline: 0.15, contrast: 0.4}\n"
TUNE = "tune: {key: optim.peak_lr, values: [1, 2], metric: val/loss, goal: minimize, seed: 9, budget_share: 0.25}"


def refusal(folder: Path, *changes: tuple[str, str], words: tuple[str, ...] = ()) -> str:
    found = sweep(folder, *changes).with_words(["seed=0", *words])
    with pytest.raises(UserError) as error:
        check(found, found.points())
    assert str(found.path) in str(error.value)
    return str(error.value)


def test_a_right_file_passes(tmp_path: Path) -> None:
    for words in ([], ["seed=0", "objective.mask_ratio=0.4"]):  # arms of the primary contrast may be left out on the command line
        found = sweep(tmp_path).with_words(words)
        check(found, found.points())


MISTAKES = [
    (
        (RATIO, RATIO.replace("mask_ratio", "mask_ration")),
        "line 12: objective.mask_ration=0.15: no such key; did you mean objective.mask_ratio",
    ),
    (("[0.15, 0.4]", "[0.15, 1.4]"), "line 12: objective.mask_ratio=1.4: must be"),
    ((RATIO, "  objective:\n    values: [mlm, mml]\n"), "line 12: objective=mml: no such option; did you mean mlm?"),
    (("+experiment=tiny", "+experiment=tinny"), "line 16: +experiment=tinny: no such option; did you mean tiny?"),
    (
        ("name: probe/mlm_15_loss", "name: probe/mlm_16_loss"),
        "line 4: probe/mlm_16_loss: a metric that no run logs; did you mean probe/mlm_15",
    ),
    (("metrics: [val/loss]", "metrics: [cola/matthews]"), "line 8: cola/matthews: a metric that no run logs"),
    (("contrast: 0.4", "contrast: 0.5"), "line 7: primary.contrast: there is no arm 0.5"),
    (("contrast: 0.4", "contrast: 0.15"), "line 7: primary.contrast: is the baseline itself"),
    (
        ("ordered: true", "published: [wettig_mask_rate]"),
        "line 10: published: no such table as wettig_mask_rate; did you mean wettig_mask_rate_sweep_large?",
    ),
    (("ordered: true", "factor: [objective.ratio]"), "line 10: objective.ratio: no such key"),
    (("ordered: true", TUNE.replace("peak_lr", "peek_lr")), "line 10: optim.peek_lr: no such key; did you mean optim.peak_lr?"),
    (("ordered: true", TUNE.replace("val/loss", "val/lost")), "line 10: val/lost: a metric that no run logs; did you mean val/loss?"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES, ids=lambda value: value[1][:30] if isinstance(value, tuple) else None)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    without_primary = [] if "primary" in message else [(PRIMARY, "  primary: {metric: val/loss, baseline: 0.15, contrast: 0.4}\n")]
    changes = without_primary if message.startswith(("line 4", "line 8", "line 10")) else [] if "primary" in message else [(PRIMARY, "\n")]
    assert message in refusal(tmp_path, *changes, change)


def test_a_mistake_behind_the_file_is_told_as_such(tmp_path: Path) -> None:
    assert "command line: max_length=4: must be at least 8" in refusal(tmp_path, words=("max_length=4",))
    assert "command line: objective.mask_ratio=4" in refusal(tmp_path, (PRIMARY, "\n"), words=("objective.mask_ratio=0.15,4",))


@pytest.mark.parametrize(("word", "message"), [("seed=1,1", "a value is given twice"), ("seed=", "a parameter without a value")])
def test_what_no_parameter_can_be_behind_the_file(tmp_path: Path, word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sweep(tmp_path).with_words([word])


def test_points_that_are_one_run_after_composition_are_refused(tmp_path: Path) -> None:
    """Fine-tuning seeds and tags make no other pretraining run; with a mask count per row, neither does the number of workers."""
    message = refusal(tmp_path, (PRIMARY, "\n"), (RATIO, "  trainer.num_workers:\n    values: [0, 1]\n"))
    assert (
        "points that are equal after composition:\n  line 12: trainer.num_workers=0 and trainer.num_workers=1 are the same run" in message
    )


def test_a_search_is_checked_at_the_ends_of_its_ranges(tmp_path: Path) -> None:
    changes = (("method: grid", "method: bayes\nrun_cap: 4"), (PRIMARY, "\n"), ("values: [0.15, 0.4]", "{min: 0.1, max: 1.2}"))
    found = sweep(tmp_path, *changes)
    assert [point.values["objective.mask_ratio"] for point in corners(found)] == [0.1, 1.2, 0.1, 0.1]
    with pytest.raises(UserError, match=r"line 13: objective\.mask_ratio=1\.2: must be"):
        check(found, corners(found))


def test_metrics_that_only_a_validation_can_tell_are_found(tmp_path: Path) -> None:
    small = ["model.hidden_size=16", "model.num_heads=2", "model.intermediate_size=16", "model.num_layers=1", "max_length=32"]
    (config, *_) = [point.config for point in sweep(tmp_path).with_words(small).points()]
    names = ["val/mlm_accuracy", "train/learning_rate", "train/positions", "probe/mlm_15_perplexity", "probe/mlm_16_loss", "val/nothing"]
    assert logged_metrics.missing(names, [config]) == ["probe/mlm_16_loss", "val/nothing"]
    assert logged_metrics.missing(["val/next_sentence_accuracy", "val/mlm_loss"], [config]) != []
