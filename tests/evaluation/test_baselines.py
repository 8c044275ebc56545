from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from mlm_lab.evaluation.baselines import L2, fit_logistic, sequence_baselines, word_features
from mlm_lab.evaluation.task import SequenceExample, TaskData


def examples(*texts_and_labels):
    return [SequenceExample(text, None, label) for text, label in texts_and_labels]


def test_logistic_regression_agrees_with_torch():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    features = np.hstack([random.normal(size=(80, 6)), np.ones((80, 1))])
    labels = random.integers(0, 3, 80)
    weights = torch.zeros(7, 3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=500, tolerance_grad=1e-10, tolerance_change=1e-14, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(torch.tensor(features) @ weights, torch.tensor(labels), reduction="sum")
        loss = loss + 0.5 * L2 * weights[:-1].square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    ours = fit_logistic(sparse.csr_array(features), labels, 3)
    np.testing.assert_allclose(ours[:-1], weights.detach().numpy()[:-1], atol=1e-3)
    ours_probabilities, theirs = (
        np.exp(features @ w) / np.exp(features @ w).sum(1, keepdims=True) for w in (ours, weights.detach().numpy())
    )
    np.testing.assert_allclose(ours_probabilities, theirs, atol=1e-3)


def test_word_features_are_presence_of_training_words():
    train, dev = word_features(examples(("b A a a.", 0)), examples(("A new. a", 0)))
    assert train.toarray().tolist() == [[1, 1, 1, 1]]  # ".", "a", "b" and the constant
    assert dev.toarray().tolist() == [[1, 1, 0, 1]]


def test_baselines_find_what_is_there():
    """Words decide: the bag of words is right, the majority and the length are not."""
    random = np.random.default_rng(0)
    parts = []
    for size in (200, 100):
        labels = [int(n % 3 > 0) for n in range(size)]
        parts.append(examples(*((" ".join([("good", "fine")[label], *random.choice(list("abcdef"), 5)]), label) for label in labels)))
    data = TaskData(kind="classification", label_names=("x", "y"), train=parts[0], dev=parts[1])
    scores = sequence_baselines(data, ("accuracy",))
    assert scores["bag_of_words"]["accuracy"] == 1.0
    assert scores["majority"]["accuracy"] == pytest.approx(0.66)
    assert scores["length"]["accuracy"] == pytest.approx(0.66)


def test_a_length_artefact_is_found():
    parts = [examples(*(("word " * (5 + n % 7 + 3 * (n % 2)), n % 2) for n in range(size))) for size in (200, 100)]
    scores = sequence_baselines(TaskData(kind="classification", label_names=("x", "y"), train=parts[0], dev=parts[1]), ("accuracy",))
    assert scores["length"]["accuracy"] > 0.65
