"""Metrics against values worked out by hand, and collapsed runs (traps.md 31, 33)."""

from __future__ import annotations

import pytest

from mlm_lab.evaluation.metrics import is_constant, metric_names, score_sequences, score_tags
from mlm_lab.evaluation.task import TaskData
from tests.evaluation.protocol import task

LABELS = [1, 1, 1, 0, 0, 1, 0, 1]
PREDICTIONS = [1, 1, 0, 0, 1, 1, 0, 1]  # 4 true positives, 1 false positive, 1 false negative, 2 true negatives


def test_classification_by_hand():
    scores = score_sequences(["accuracy", "f1", "matthews", "macro_f1"], LABELS, PREDICTIONS, 2)
    assert scores["accuracy"] == pytest.approx(6 / 8)
    assert scores["f1"] == pytest.approx(2 * 4 / (2 * 4 + 1 + 1))
    assert scores["matthews"] == pytest.approx((4 * 2 - 1 * 1) / (5 * 5 * 3 * 3) ** 0.5)
    assert scores["macro_f1"] == pytest.approx((8 / 10 + 4 / 6) / 2)


def test_more_classes_than_occur_among_the_answers():
    scores = score_sequences(["accuracy"], [0, 1, 2, 2], [0, 0, 2, 2], 3)
    assert scores["accuracy"] == pytest.approx(3 / 4)


def test_correlations_by_hand():
    labels, predictions = [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 4.0, 2.0]
    scores = score_sequences(["pearson", "spearman"], labels, predictions, 0)
    assert scores["pearson"] == pytest.approx(4.5 / (5 * 8.75) ** 0.5)
    assert scores["spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))


def test_spearman_gives_equal_values_their_mean_rank():
    assert score_sequences(["spearman"], [1.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], 0)["spearman"] == pytest.approx(0.9**0.5)


def test_trap_33_mrpc_of_a_collapsed_run():
    """All 408 dev examples called paraphrases, 279 of which are: .684 / .812, and flagged."""
    labels, predictions = [1] * 279 + [0] * 129, [1] * 408
    scores = score_sequences(task("mrpc").metrics, labels, predictions, 2)
    assert scores == {"f1": pytest.approx(0.812, abs=5e-4), "accuracy": pytest.approx(0.684, abs=5e-4)}
    assert is_constant("classification", predictions, labels)
    assert not is_constant("classification", [*predictions[1:], 0], labels)


def test_trap_33_an_undefined_correlation_is_not_a_number():
    assert score_sequences(["pearson", "spearman"], [0.0, 1.0, 2.0], [2.5, 2.5, 2.5], 0) == {"pearson": None, "spearman": None}
    assert is_constant("regression", [2.5, 2.5 + 1e-6, 2.5], [0.0, 1.0, 5.0])
    assert not is_constant("regression", [2.5, 2.6], [0.0, 5.0])
    assert not is_constant("regression", [1e-6, 2e-6], [0.0, 1e-5])


def test_trap_33_a_tagger_that_says_o_everywhere_has_collapsed():
    assert is_constant("tagging", [["O", "O"], ["O", ""]], [])
    assert not is_constant("tagging", [["O", "O"], ["B-PER", ""]], [])


def test_word_accuracy_counts_words_that_were_cut_off_as_wrong():
    assert score_tags(["accuracy"], [["N", "V", "N"]], [["N", "N", ""]]) == {"accuracy": pytest.approx(1 / 3)}


TRAP_31 = {
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
    "mrpc": ("f1", "accuracy"),
    "qqp": ("f1", "accuracy"),
    "stsb": ("pearson", "spearman"),
    "mnli": ("accuracy",),
}


@pytest.mark.parametrize("name", TRAP_31)
def test_trap_31_metrics_of_glue(name):
    data = TaskData("classification", ("0", "1"), [], [])
    assert metric_names(task(name), data) == TRAP_31[name]


def test_metrics_of_own_data_suit_its_kind():
    own = task("own")
    assert metric_names(own, TaskData("classification", ("a", "b"), [], [])) == ("accuracy", "macro_f1")
    assert metric_names(own, TaskData("regression", (), [], [])) == ("pearson", "spearman")
    assert metric_names(own, TaskData("tagging", ("O", "B-X"), [], [])) == ("f1", "precision", "recall")
    assert metric_names(own, TaskData("tagging", ("NOUN", "VERB"), [], [])) == ("accuracy",)
