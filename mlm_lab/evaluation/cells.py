"""Cells: one fine-tuning for each task, seed and start (pretrained or floor), run once and kept.

    evaluation/TASK/seed_N-KEY/pretrained/  result.json         status, metrics, what was cut, seconds
                               floor/       predictions.jsonl   one line for each evaluated example, in the order of its part

result.json is written last, so a cell that was interrupted is run again; so is a failed one.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.evaluation.encode import EncodedPart, encode
from mlm_lab.evaluation.metrics import is_constant, metric_names, score_sequences, score_tags
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import Task, TaskData

if TYPE_CHECKING:
    import torch
    from lightning.fabric import Fabric

    from mlm_lab.evaluation.finetune import Recipe
    from mlm_lab.tokenizers.loading import LoadedTokenizer

STARTS = ("pretrained", "floor")
RESULT, PREDICTIONS = "result.json", "predictions.jsonl"


@dataclass(frozen=True)
class EncodedTask:
    """A task's examples as token ids, shared by all of its cells."""

    task: Task
    data: TaskData
    train: EncodedPart
    parts: dict[str, EncodedPart]
    fingerprint: str
    """Digest of the examples."""

    @classmethod
    def of(cls, task: Task, data: TaskData, fingerprint: str, tokenizer: LoadedTokenizer, max_length: int) -> EncodedTask:
        parts = {name: encode(data, examples, tokenizer, max_length) for name, examples in data.parts.items()}
        return cls(task, data, encode(data, data.train, tokenizer, max_length), parts, fingerprint)

    def recipe(self, evaluation: Evaluation, start: str, hidden_size: int) -> Recipe:
        """How a cell is trained: the task's own choices before those of `evaluation`."""
        from mlm_lab.evaluation.finetune import Recipe

        task = self.task
        batch_size = task.batch_size or evaluation.batch_size
        rate = task.learning_rate or evaluation.peak_rate(hidden_size)
        if start == "floor" and evaluation.floor_learning_rate is not None:
            rate = evaluation.floor_learning_rate
        steps = task.steps or (task.epochs or evaluation.epochs) * -(-len(self.train) // batch_size)
        return Recipe(rate, steps, batch_size, evaluation.warmup_share, evaluation.weight_decay, evaluation.pooling, task.feature_based)


def limit_examples(examples: Sequence, limit: int | None, seed: int) -> Sequence:
    """The first `limit` of the examples in an order drawn with seed; a larger limit holds the smaller one's examples."""
    if limit is None or limit >= len(examples):
        return examples
    order = np.random.default_rng([seed, len(examples)]).permutation(len(examples))[:limit]
    return [examples[i] for i in sorted(order)]


def fingerprint_of(data: TaskData) -> str:
    """Digest of all examples: a cell whose files have changed since is run again."""
    digest = blake2b(digest_size=16)
    for name, examples in (("train", data.train), *data.parts.items()):
        digest.update(f"{name} {data.label_names}".encode())
        document = ()
        for example in examples:
            values = example._asdict()
            if (around := values.pop("document", ())) is not document:  # once for all of its sentences
                digest.update(repr(document := around).encode("utf-8", "surrogatepass"))
            digest.update(repr(tuple(values.values())).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def read_cell(folder: Path, fingerprint: str) -> dict | None:
    """A finished cell's record, or None where it has to be run: missing, failed, or of other examples."""
    try:
        record = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return record if record.get("status") == "finished" and record.get("examples_fingerprint") == fingerprint else None


def run_cell(
    folder: Path,
    encoded: EncodedTask,
    encoder: torch.nn.Module,
    recipe: Recipe,
    seed: int,
    fabric: Fabric,
    pad_id: int,
    title: str,
) -> dict:
    """Fine-tune, predict, score, and write the cell's folder. A diverged run or one that does not fit in memory is recorded as failed."""
    import torch

    from mlm_lab.evaluation.finetune import Diverged, finetune, predict

    started = time.monotonic()
    record = {
        "status": "finished",
        "seed": seed,
        "steps": recipe.steps,
        "learning_rate": recipe.learning_rate,
        "batch_size": recipe.batch_size,
    }
    record |= {
        "examples_fingerprint": encoded.fingerprint,
        "train_examples": len(encoded.train),
        "train_truncated": encoded.train.truncated,
    }
    try:
        model = finetune(copy.deepcopy(encoder), encoded.data, encoded.train, recipe, seed, fabric, pad_id, title)
        predictions = {name: predict(model, part, encoded.data.label_names, fabric, pad_id) for name, part in encoded.parts.items()}
    except (Diverged, torch.OutOfMemoryError) as error:
        record |= {"status": "failed", "reason": str(error)}
        predictions = {}
    for name, answers in predictions.items():
        record.setdefault("metrics", {}).update(_score(encoded, name, answers))
    if predictions:
        record["collapsed"] = is_constant(encoded.data.kind, predictions[""], encoded.parts[""].labels)
        record["examples"] = {name or "dev": len(part) for name, part in encoded.parts.items()}
        record["truncated"] = {name or "dev": part.truncated for name, part in encoded.parts.items()}
        record["lost_words"] = {name or "dev": part.lost_words for name, part in encoded.parts.items()}
    record["seconds"] = round(time.monotonic() - started, 3)
    _write(folder, record, encoded.data, predictions)
    return record


def _score(encoded: EncodedTask, part: str, predictions: list) -> Mapping[str, float | None]:
    data, names = encoded.data, metric_names(encoded.task, encoded.data)
    examples = data.parts[part]
    if data.kind == "tagging":
        scores = score_tags(names, [example.tags for example in examples], predictions)
    else:
        scores = score_sequences(names, [example.label for example in examples], predictions, len(data.label_names))
    return {f"{part}/{name}" if part else name: value for name, value in scores.items()}


def _write(folder: Path, record: dict, data: TaskData, predictions: Mapping[str, list]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT).unlink(missing_ok=True)
    with (folder / PREDICTIONS).open("w", encoding="utf-8") as file:
        for part, answers in predictions.items():
            for index, (example, answer) in enumerate(zip(data.parts[part], answers, strict=True)):
                gold = example.tags if data.kind == "tagging" else example.label
                row = {"part": part or "dev", "index": index, "gold": gold, "prediction": answer}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    temporary = folder / f"{RESULT}.tmp"
    temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, folder / RESULT)
