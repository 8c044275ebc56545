"""Fine-tuning as a measure: train a copy of the encoder and a fresh head with one seed, predict every evaluated part, score."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mlm_lab.evaluation.encode import EncodedPart, encode
from mlm_lab.evaluation.measures.measure import Outcome, Subject
from mlm_lab.evaluation.metrics import is_constant, metric_names, score_sequences, score_tags
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import FLOOR, FineTunedTask, TaskData

if TYPE_CHECKING:
    from mlm_lab.evaluation.finetune import Recipe
    from mlm_lab.tokenizers.loading import LoadedTokenizer


class FineTuning:
    """Satisfies `Measure`. The examples are encoded once, for all cells."""

    def __init__(self, task: FineTunedTask, data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int):
        self.task, self.data, self.evaluation = task, data, evaluation
        self.train = encode(data, data.train, tokenizer, max_length)
        self.parts = {name: encode(data, examples, tokenizer, max_length) for name, examples in data.parts.items()}
        self.unlabelled = {name: encode(data, examples, tokenizer, max_length) for name, examples in data.unlabelled.items()}

    def recipe(self, subject: Subject) -> Recipe:
        """How a cell is trained: the task's own choices before those of `evaluation`."""
        from mlm_lab.evaluation.finetune import Recipe

        task, evaluation = self.task, self.evaluation
        batch_size = task.batch_size or evaluation.batch_size
        rate = task.learning_rate or evaluation.peak_rate(subject.module.encoder.hidden_size)
        if subject.start == FLOOR and evaluation.floor_learning_rate is not None:
            rate = evaluation.floor_learning_rate[0]  # of a cell's setting there is one
        steps = task.steps or (task.epochs or evaluation.epochs) * -(-len(self.train) // batch_size)
        return Recipe(rate, steps, batch_size, evaluation.warmup_share, evaluation.weight_decay, evaluation.pooling, task.feature_based)

    def settings(self, subject: Subject) -> dict:
        recipe = self.recipe(subject)
        return {
            "steps": recipe.steps,
            "learning_rate": recipe.learning_rate,
            "batch_size": recipe.batch_size,
            "train_examples": len(self.train),
            "train_truncated": self.train.truncated,
        }

    def __call__(self, subject: Subject, seed: int) -> Outcome:
        from mlm_lab.evaluation.finetune import finetune, predict

        data, fabric, encoder = self.data, subject.fabric, subject.module.encoder
        pad_id = subject.tokenizer.vocabulary.pad_id
        model = finetune(copy.deepcopy(encoder), data, self.train, self.recipe(subject), seed, fabric, pad_id, subject.title)
        answers, unlabelled = (
            {name: predict(model, part, data.label_names, fabric, pad_id) for name, part in parts.items()}
            for parts in (self.parts, self.unlabelled)
        )
        names = metric_names(self.task, data)
        return Outcome(
            {metric: value for name in answers for metric, value in score_part(data, names, name, answers[name]).items()},
            prediction_lines(data, answers),
            is_constant(data.kind, answers[""], self.parts[""].labels),
            examples_facts(self.parts),
            unlabelled,
            model.module.encoder,
        )


def score_part(data: TaskData, names: Sequence[str], part: str, answers: Sequence) -> dict[str, float | None]:
    """The metrics of one part, those of a further part under PART/NAME."""
    examples = data.parts[part]
    if data.kind == "tagging":
        scores = score_tags(names, [example.tags for example in examples], answers)
    else:
        scores = score_sequences(names, [example.label for example in examples], answers, len(data.label_names))
    return {f"{part}/{name}" if part else name: value for name, value in scores.items()}


def prediction_lines(data: TaskData, answers: Mapping[str, Sequence]) -> list[dict]:
    """Part, index, gold and prediction of every evaluated example."""
    return [
        {"part": part or "dev", "index": index, "gold": example.tags if data.kind == "tagging" else example.label, "prediction": answer}
        for part, of_part in answers.items()
        for index, (example, answer) in enumerate(zip(data.parts[part], of_part, strict=True))
    ]


def examples_facts(parts: Mapping[str, EncodedPart]) -> dict:
    """How many examples each part has, how many were cut, and how many words were lost to it."""
    named = {name or "dev": part for name, part in parts.items()}
    return {
        "examples": {name: len(part) for name, part in named.items()},
        "truncated": {name: part.truncated for name, part in named.items()},
        "lost_words": {name: part.lost_words for name, part in named.items()},
    }
