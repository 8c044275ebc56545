"""Simple methods that stand beside an encoder: what a task gives away without context.

majority        the most frequent training label
length          logistic regression on the number of words and characters (what a length artefact would give)
bag_of_words    logistic regression on which words occur
shape_rule      four lines on how a name looks (tagging of code names)

The regression is minimised by scipy: scikit-learn, which has the whole, is no core requirement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy import optimize, sparse
from scipy.special import logsumexp

from mlm_lab.evaluation.metrics import score_sequences, score_tags
from mlm_lab.evaluation.task import SequenceExample, TaskData

WORD = re.compile(r"\w+|[^\w\s]")
L2 = 1.0
"""Strength of the penalty, 0.5 * L2 * |weights|^2 beside the summed loss (scikit-learn's C = 1 / L2, and its default)."""


def sequence_baselines(data: TaskData, metrics: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """majority, length and bag_of_words of a classification task, trained on `data.train`, scored on `data.dev`."""
    classes = len(data.label_names)
    labels = np.array([example.label for example in data.train])
    gold = [example.label for example in data.dev]
    most_frequent = Counter(labels.tolist()).most_common(1)[0][0]
    predictions = {"majority": np.full(len(gold), most_frequent)}
    for name, features in (("length", length_features), ("bag_of_words", word_features)):
        train, dev = features(data.train, data.dev)
        predictions[name] = np.argmax(dev @ fit_logistic(train, labels, classes), axis=1)
    return {name: score_sequences(metrics, gold, predicted.tolist(), classes) for name, predicted in predictions.items()}


def length_features(train: Sequence[SequenceExample], dev: Sequence[SequenceExample]) -> tuple[sparse.csr_array, sparse.csr_array]:
    """(examples, 5): number of words and of characters, standardised, their squares, and 1."""

    def counts(part: Sequence[SequenceExample]) -> np.ndarray:
        return np.array([(len(text(example).split()), len(text(example))) for example in part], dtype=np.float64)

    mean, std = counts(train).mean(axis=0), counts(train).std(axis=0) + 1e-9
    scaled = [(counts(part) - mean) / std for part in (train, dev)]
    return tuple(sparse.csr_array(np.hstack([x, x**2, np.ones((len(x), 1))])) for x in scaled)


def word_features(train: Sequence[SequenceExample], dev: Sequence[SequenceExample]) -> tuple[sparse.csr_array, sparse.csr_array]:
    """(examples, training words + 1): 1 where the word occurs, upper and lower case alike; the last column is 1."""
    words = [[sorted(set(WORD.findall(text(example).lower()))) for example in part] for part in (train, dev)]
    column = {word: number for number, word in enumerate(sorted({word for row in words[0] for word in row}))}
    matrices = []
    for rows in words:
        columns = [[*(column[word] for word in row if word in column), len(column)] for row in rows]
        starts = np.cumsum([0, *map(len, columns)])
        indices = np.concatenate([np.array(row) for row in columns])
        matrices.append(sparse.csr_array((np.ones(len(indices)), indices, starts), shape=(len(rows), len(column) + 1)))
    return matrices[0], matrices[1]


def text(example: SequenceExample) -> str:
    """The text of an example, or both texts of a pair."""
    return example.text_a if example.text_b is None else f"{example.text_a} {example.text_b}"


def fit_logistic(features: sparse.csr_array, labels: np.ndarray, classes: int) -> np.ndarray:
    """(columns, classes): multinomial logistic regression with an L2 penalty on all but the last column, by L-BFGS (deterministic)."""
    columns = features.shape[1]
    target = np.eye(classes)[labels]
    penalty = np.full((columns, 1), L2)
    penalty[-1] = 0.0

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(columns, classes)
        logits = features @ weights
        log_normaliser = logsumexp(logits, axis=1, keepdims=True)
        value = (log_normaliser.sum() - (logits * target).sum()) + 0.5 * (penalty * weights**2).sum()
        return value, (features.T @ (np.exp(logits - log_normaliser) - target) + penalty * weights).ravel()

    result = optimize.minimize(loss, np.zeros(columns * classes), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return result.x.reshape(columns, classes)


def shape_tag(word: str) -> str:
    """The shape rule: what kind of name a word looks like."""
    bare = word.removesuffix("()")
    if word != bare or re.fullmatch(r"_*[a-z]\w*(\.[a-z_]\w*)*\.[a-z]+_\w+", bare):
        return "B-FUNCTION"
    if re.fullmatch(r"([a-z_]\w*\.)*[A-Z](?=\w*[a-z])\w*[A-Z]\w*", bare):
        return "B-CLASS"
    if re.fullmatch(r"[a-z_]\w*(\.[a-z_]\w*)+", bare):
        return "B-MODULE"
    return "B-PARAMETER" if "_" in bare.strip("_") else "O"


def shape_rule_baseline(data: TaskData, metrics: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """The shape rule on a tagging task of code names; it learns nothing from `data.train`."""
    gold = [example.tags for example in data.dev]
    return {"shape_rule": score_tags(metrics, gold, [[shape_tag(word) for word in example.words] for example in data.dev])}
