"""Metrics by name: torchmetrics for what has one label an example, entity spans for tags.

torchmetrics takes seconds to import, so it is imported when the first metric is computed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from mlm_lab.evaluation.spans import entity_scores, is_prefixed
from mlm_lab.evaluation.task import Kind, Task, TaskData


def metric_names(task: Task, data: TaskData) -> tuple[str, ...]:
    """What is reported for each evaluated part: the task's own choice, else what suits the kind of data. The main metric first."""
    if task.metrics:
        return task.metrics
    if data.kind == "tagging":
        return ("f1", "precision", "recall") if all(map(is_prefixed, data.label_names)) else ("accuracy",)
    return ("accuracy", "macro_f1") if data.kind == "classification" else ("pearson", "spearman")


def score_sequences(
    names: Sequence[str], labels: Sequence[float], predictions: Sequence[float], num_labels: int
) -> dict[str, float | None]:
    """Metrics of one part of a sequence task.

    Args:
        names: of accuracy, f1 (of label 1), macro_f1, matthews; pearson, spearman.
        labels: class indices, or values.
        predictions: likewise.
        num_labels: number of classes (not used for values).

    Returns:
        name -> value; None where the metric is undefined (a correlation with constant predictions).
    """
    import torch
    from torchmetrics.functional import classification, regression

    given, predicted = torch.tensor(labels), torch.tensor(predictions)
    multiclass = {"num_classes": max(num_labels, 2)}
    functions = {
        "accuracy": lambda: classification.multiclass_accuracy(predicted, given, average="micro", **multiclass),
        "f1": lambda: classification.binary_f1_score(predicted, given),
        "macro_f1": lambda: classification.multiclass_f1_score(predicted, given, average="macro", **multiclass),
        "matthews": lambda: classification.multiclass_matthews_corrcoef(predicted, given, **multiclass),
        "pearson": lambda: _correlation(regression.pearson_corrcoef, predicted, given),
        "spearman": lambda: _correlation(regression.spearman_corrcoef, predicted, given),
    }
    values = {name: float(functions[name]()) for name in names}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _correlation(function, predicted, given) -> float:
    predicted, given = predicted.double(), given.double()
    return math.nan if predicted.std() == 0 or given.std() == 0 else float(function(predicted, given))


def score_tags(names: Sequence[str], gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float | None]:
    """Metrics of one part of a tagging task: f1, precision, recall over entities; accuracy over words.

    `predicted` has a tag for every word; "" for a word that was cut off, which is then missed.
    """
    scores = entity_scores(gold, predicted)
    words = [
        (g, p) for gold_tags, predicted_tags in zip(gold, predicted, strict=True) for g, p in zip(gold_tags, predicted_tags, strict=True)
    ]
    scores["accuracy"] = sum(g == p for g, p in words) / len(words)
    return {name: scores[name] for name in names}


def is_constant(kind: Kind, predictions: Sequence, labels: Sequence) -> bool:
    """Whether a run has collapsed (traps.md 33): the same answer for every example; for every word, of tags.

    Values count as the same where they differ by less than a thousandth of the labels' deviation.
    """
    if kind == "regression":
        return max(predictions) - min(predictions) <= 1e-3 * statistics.pstdev(map(float, labels))
    if kind == "tagging":
        predictions = [tag for tags in predictions for tag in tags if tag]
    return len(set(predictions)) <= 1
