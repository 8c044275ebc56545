"""A linear probe on frozen features: what a layer of the encoder says linearly about words (tagging) or texts (classification).

    train -> 4/5 by a hash of the text: multinomial logistic regression on every layer's features, the embeddings' as layer 0
             1/5: the layer with the best main metric is chosen here, the lower one where two are equal
    dev   -> the chosen layer's metrics; those of all layers stand in the cell

Last-layer probes favour some objectives, so no layer is fixed beforehand. Features: the hidden state of a word's first sub-token, or the
pooled ones of a text (evaluation.pooling). Words lost to truncation count as missed. Nothing is drawn, so one seed is enough.

Beside it a control task on the chosen layer (Hewitt & Liang 2019, section 2): each word type, or each text by its first word, has a random
label, drawn from the frequencies of the fitted labels. Only a probe that memorises types can learn it. Selectivity is the accuracy on the
task minus that on the control task, both over words (texts), also where the main metric is F1 over entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.errors import UserError
from mlm_lab.evaluation.encode import NO_TOKEN, EncodedPart, encode
from mlm_lab.evaluation.hash_order import hash_share
from mlm_lab.evaluation.measures.fine_tuning import examples_facts, prediction_lines, score_part
from mlm_lab.evaluation.measures.measure import Outcome, Subject
from mlm_lab.evaluation.metrics import is_constant
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import SequenceExample, TaggedExample, TaskData

if TYPE_CHECKING:
    import torch

    from mlm_lab.evaluation.measures.frozen import Head
    from mlm_lab.tokenizers.loading import LoadedTokenizer

SELECTION_SHARE = 0.2
"""Share of the training examples that choose the layer and are not fitted."""
Example = SequenceExample | TaggedExample
Classes = list[np.ndarray]
"""For each example the class of each word, NO_TOKEN where it was cut off, or (1,) that of the text."""


class LinearProbe:
    """Satisfies `Measure`."""

    def __init__(self, metrics: Sequence[str], data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int):
        """metrics: of each evaluated part; the first one chooses the layer.

        Raises:
            UserError: too few training examples to fit and to choose by.
        """
        self.metrics, self.data, self.pooling = tuple(metrics), data, evaluation.pooling
        self.fitted, self.selecting = split_by_hash(data.train)
        if not self.fitted or not self.selecting:
            raise UserError(
                "there are too few training examples for a probe: some are fitted, others choose the layer",
                given=f"{len(data.train)} examples, {len(self.selecting)} of them to choose by",
                fix="give more training examples",
            )
        self.fitted_part, self.selecting_part = (encode(data, part, tokenizer, max_length) for part in (self.fitted, self.selecting))
        self.parts = {name: encode(data, examples, tokenizer, max_length) for name, examples in data.parts.items()}

    def settings(self, subject: Subject) -> dict:
        from mlm_lab.evaluation.measures.logistic import L2

        return {
            "fitted_examples": len(self.fitted),
            "selecting_examples": len(self.selecting),
            "train_truncated": self.fitted_part.truncated + self.selecting_part.truncated,
            "l2": L2,
            "layer_rule": f"best {self.metrics[0]} on the {len(self.selecting)} selecting examples, the lower layer where equal",
        }

    def __call__(self, subject: Subject, seed: int) -> Outcome:
        from mlm_lab.evaluation.measures.frozen import FrozenEncoder

        encoder = FrozenEncoder(subject, self.pooling)
        features, gold = encoder.features(self.fitted_part), gold_classes(self.fitted_part)
        heads = [self._fit(layer, of_layer, gold) for layer, of_layer in enumerate(features)]
        selection = [self._scores(self.selecting, classes) for classes in encoder.answers(self.selecting_part, heads)]
        best = max(range(len(heads)), key=lambda layer: selection[layer][self.metrics[0]])  # the first of equals
        control = ControlTask(np.bincount(np.concatenate(gold), minlength=len(self.data.label_names)))
        heads.append(self._fit(best, features[best], control.classes(self.fitted)))
        answers = {name: encoder.answers(part, heads) for name, part in self.parts.items()}
        return self._outcome(answers, selection, best, control)

    def _fit(self, layer: int, features: torch.Tensor, classes: Classes) -> Head:
        """A head for a layer's features (N, D). classes: of the fitted examples; those of words without a token are left out."""
        import torch

        from mlm_lab.evaluation.measures.frozen import Head, all_places
        from mlm_lab.evaluation.measures.logistic import fit

        kept = np.concatenate(all_places(self.fitted_part)) != NO_TOKEN
        labels = torch.from_numpy(np.concatenate(classes)[kept]).to(features.device)
        return Head(layer, fit(features, labels, len(self.data.label_names)))

    def _scores(self, examples: Sequence[Example], classes: Classes) -> dict[str, float | None]:
        part = TaskData(self.data.kind, self.data.label_names, (), examples)
        return score_part(part, self.metrics, "", predictions_of(part, classes))

    def _outcome(self, answers: dict[str, list[Classes]], selection: list[dict], best: int, control: ControlTask) -> Outcome:
        """answers: part -> those of each layer's head, then the control task's."""
        data, dev = self.data, answers[""]
        predictions = {name: predictions_of(data, of_heads[best]) for name, of_heads in answers.items()}
        metrics = {metric: value for name in answers for metric, value in score_part(data, self.metrics, name, predictions[name]).items()}
        right = share_equal(dev[best], gold_classes(self.parts[""]))
        control_right = share_equal(dev[-1], control.classes(data.dev))
        metrics |= {"layer": float(best), "control_accuracy": control_right, "selectivity": right - control_right}
        layers = [
            {"layer": layer, "selecting": scores, "dev": self._scores(data.dev, dev[layer])} for layer, scores in enumerate(selection)
        ]
        collapsed = is_constant(data.kind, predictions[""], self.parts[""].labels)
        return Outcome(metrics, prediction_lines(data, predictions), collapsed, {"layers": layers, **examples_facts(self.parts)})


class ControlTask:
    """Random classes of word types: a function of the type and of the classes' frequencies alone."""

    def __init__(self, counts: np.ndarray):
        """counts (C,): how often each class of the task occurs."""
        self._bounds = np.cumsum(counts / counts.sum())

    def classes(self, examples: Sequence[Example]) -> Classes:
        return [np.array([self.of_type(word) for word in types_of(example)]) for example in examples]

    def of_type(self, word: str) -> int:
        return min(int(np.searchsorted(self._bounds, hash_share("control", word), side="right")), len(self._bounds) - 1)


def types_of(example: Example) -> Sequence[str]:
    """What the control task reads of each word, or of a text: its first word."""
    return example.words if isinstance(example, TaggedExample) else (example.text_a.split() or [""])[:1]


def split_by_hash(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """(to fit, to choose the layer by): a text that occurs twice stays on one side, and the order does not matter."""
    sides: tuple[list[Example], list[Example]] = ([], [])
    for example in examples:
        sides[hash_share("selection", repr(example[0])) < SELECTION_SHARE].append(example)
    return sides


def gold_classes(part: EncodedPart) -> Classes:
    return [np.atleast_1d(labels) for labels in part.labels]


def predictions_of(data: TaskData, classes: Classes) -> list:
    """The tags of each example, "" for a word that was cut off, or the class of each text."""
    if data.kind == "tagging":
        return [["" if number == NO_TOKEN else data.label_names[number] for number in of_example] for of_example in classes]
    return [int(of_example[0]) for of_example in classes]


def share_equal(answers: Classes, gold: Classes) -> float:
    return float((np.concatenate(answers) == np.concatenate(gold)).mean())
