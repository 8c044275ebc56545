"""Grids, what is chosen between their settings, and the part of train that it may be chosen on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.evaluation.protocol import best_setting, carve, median_score, with_setting
from mlm_lab.evaluation.task import FLOOR, PRETRAINED, SequenceExample, TaggedExample, TaskData
from tests.evaluation.protocol import evaluation, task


def grid(**changes):
    return replace(evaluation().grid, **changes)


def paper(**changes):
    return evaluation(protocol="paper", grid=grid(learning_rates=(1e-3, 2e-3), batch_sizes=(16, 32), epochs=(3,), **changes))


def test_every_combination_is_a_setting() -> None:
    settings = task("cola").settings(paper(), 128, PRETRAINED)
    assert [dict(setting) for setting in settings] == [
        {"learning_rate": 1e-3, "batch_size": 16, "epochs": 3},
        {"learning_rate": 1e-3, "batch_size": 32, "epochs": 3},
        {"learning_rate": 2e-3, "batch_size": 16, "epochs": 3},
        {"learning_rate": 2e-3, "batch_size": 32, "epochs": 3},
    ]
    assert with_setting(paper(), settings[2]).learning_rate == 2e-3


def test_a_grid_without_rates_follows_the_width() -> None:
    rates = [dict(setting)["learning_rate"] for setting in task("cola").settings(evaluation(protocol="paper"), 128, PRETRAINED)]
    assert sorted(set(rates)) == [5e-4, 1e-3, 2e-3]
    at_base = {dict(setting)["learning_rate"] for setting in task("cola").settings(evaluation(protocol="paper"), 768, PRETRAINED)}
    assert min(at_base) == pytest.approx(2.2e-5, rel=0.05) and max(at_base) == pytest.approx(8.7e-5, rel=0.05)


def test_a_task_s_own_setting_goes_before_the_grid_s() -> None:
    settings = task("cola", learning_rate=7e-4, epochs=9).settings(paper(), 128, PRETRAINED)
    assert [dict(setting) for setting in settings] == [{"batch_size": 16}, {"batch_size": 32}]
    by_steps = task("cola", steps=50).settings(paper(), 128, PRETRAINED)
    assert all("epochs" not in dict(setting) for setting in by_steps)


def test_fixed_has_nothing_to_choose() -> None:
    assert task("cola").settings(evaluation(), 128, PRETRAINED) == [()]


@pytest.mark.parametrize(
    ("changes", "rates"),
    [
        ({}, [1e-3]),
        ({"learning_rate": 5e-4}, [5e-4]),
        ({"floor_learning_rate": (3e-3,)}, [3e-3]),
        ({"floor_learning_rate": (1e-3, 3e-3)}, [1e-3, 3e-3]),
        ({"protocol": "heldout"}, [5e-4, 1e-3, 2e-3]),
    ],
)
def test_the_floor_has_rates_of_its_own(changes, rates) -> None:
    settings = task("cola").settings(evaluation(**changes), 128, FLOOR)
    assert settings == [(("floor_learning_rate", rate),) for rate in rates]
    assert with_setting(evaluation(), settings[0]).floor_learning_rate == (rates[0],)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(InvalidFields) as error:
        grid(learning_rates=(0.0,), batch_sizes=(), epochs=(0,), seeds=0, heldout_share=1.0)
    assert len(error.value.problems) == 5
    with pytest.raises(InvalidFields) as error:
        evaluation(protocol="best", floor_learning_rate=(), checkpoints="last", jobs=0, start_from={"rte": "rte"})
    assert {problem.field for problem in error.value.problems} == {"protocol", "floor_learning_rate", "checkpoints", "jobs", "start_from"}


def finished(value: float | None) -> dict:
    return {"status": "finished", "metrics": {"f1": value, "accuracy": 9.0}}


FAILED = {"status": "failed", "reason": "the training loss was nan"}


def test_the_best_median_of_the_main_metric_is_chosen() -> None:
    tried = {"a": [finished(0.9), finished(0.1), finished(0.2)], "b": [finished(0.3)], "c": [finished(0.3)]}
    assert median_score(tried["a"]) == 0.2
    assert best_setting(tried) == "b"  # the first of equal ones


def test_a_setting_that_failed_is_not_chosen() -> None:
    assert best_setting({"a": [FAILED], "b": [finished(None)], "c": [finished(-0.1)]}) == "c"
    assert best_setting({"a": [FAILED], "b": [FAILED]}) == "a"


def data(examples, **parts) -> TaskData:
    return TaskData("classification", ("0", "1"), examples, examples[:3], **parts)


def test_a_part_of_train_is_cut_by_its_text_alone() -> None:
    examples = [SequenceExample(f"text {i}", None, i % 2) for i in range(400)]
    carved = carve(data(examples, extra={"test": examples}, unlabelled={"x": examples}), 0.1, "mine")
    assert 20 < len(carved.dev) < 60 and len(carved.train) + len(carved.dev) == 400
    assert not {e.text_a for e in carved.dev} & {e.text_a for e in carved.train}
    assert (carved.extra, carved.unlabelled) == ({}, {})
    assert set(carve(data(examples[::-1]), 0.1, "mine").dev) == set(carved.dev)
    assert set(carve(data(examples[:200]), 0.1, "mine").dev) <= set(carved.dev)


def test_what_belongs_together_stays_on_one_side() -> None:
    """MNLI has three hypotheses for a premise; sentences of a document are read in it."""
    pairs = [SequenceExample(f"premise {i // 3}", f"hypothesis {i}", 0) for i in range(300)]
    carved = carve(data(pairs), 0.3, "mine")
    assert not {e.text_a for e in carved.dev} & {e.text_a for e in carved.train}
    documents = [tuple((f"w{d}", f"v{s}") for s in range(4)) for d in range(50)]
    tagged = [TaggedExample(words, ("O", "O"), document, place) for document in documents for place, words in enumerate(document)]
    held = carve(data(tagged), 0.3, "mine").dev
    assert len(held) % 4 == 0 and len(held) > 0


def test_too_few_examples_to_cut_are_told() -> None:
    with pytest.raises(UserError, match="too few training examples"):
        carve(data([SequenceExample("one text", None, 0)] * 5), 0.5, "mine")
