"""Cells: one measurement for each task, start, seed and setting, run once and kept.

    RUN_FOLDER/evaluation/TASK/seed_N-KEY/pretrained/  result.json         status, metrics, what was cut, seconds
    OUTPUT_DIR/floors/TASK/init_N-KEY/                 predictions.jsonl   one line for each evaluated example, in the order of its part
                                                       unlabelled.json     part -> predictions of what has no labels, where it was asked for
                                                       encoder.safetensors the fine-tuned encoder, where another task starts from it

result.json is written last, so a cell that was interrupted is run again; so is a failed one, and one that lacks what is asked for now.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.atomic import locked, write_text
from mlm_lab.evaluation.measures.measure import Failed, Measure, Outcome, Subject
from mlm_lab.evaluation.protocol import Setting
from mlm_lab.evaluation.task import FLOOR, TaskData

if TYPE_CHECKING:
    from torch import nn

RESULT, PREDICTIONS, UNLABELLED, ENCODER = "result.json", "predictions.jsonl", "unlabelled.json", "encoder.safetensors"


@dataclass(frozen=True)
class Cell:
    """A cell, done or not: what is measured, and where it is kept."""

    task: str
    start: str
    """Where the weights come from: one of `task.STARTS`."""
    seed: int
    """Of fine-tuning; of the initial weights too, where start is the floor."""
    setting: Setting
    folder: Path
    fingerprint: str
    """Digest of the examples."""
    carved: bool = False
    """Whether it learns a part of train and is scored on the rest, to choose a setting."""
    step: int | None = None
    """Which of the run's weights; None: the last."""
    before: Path | None = None
    """The folder of the cell whose encoder it starts from."""
    keeps_encoder: bool = False
    """Whether others start from its encoder."""
    unlabelled: str = ""
    """Digest of the parts without labels that it predicts."""

    def __str__(self) -> str:
        """Task, start, seed and what else tells it from its neighbours."""
        parts = [self.task, *([f"step {self.step:,}"] if self.step is not None else [])]
        parts.append("random start" if self.start == FLOOR else self.start)
        parts += [
            f"{name.removeprefix('floor_').replace('_', ' ')} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in self.setting
        ] + ["on a part of train"] * self.carved
        return ", ".join([*parts, f"seed {self.seed}"])

    def read(self) -> dict | None:
        """Its record, or None where it has to be run: missing, failed, of other examples, or without what is asked for."""
        try:
            record = json.loads((self.folder / RESULT).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        same = record.get("status") == "finished" and record.get("examples_fingerprint") == self.fingerprint
        same = same and (not self.unlabelled or record.get("unlabelled_fingerprint") == self.unlabelled)
        return record if same and (not self.keeps_encoder or (self.folder / ENCODER).exists()) else None

    def read_unlabelled(self) -> dict[str, list]:
        """Part -> its predictions; {} where the cell has none."""
        file = self.folder / UNLABELLED
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold what runs share, the floors, while it is measured; others wait for it. A run's own cells are under the run's claim."""
        if self.start != FLOOR:
            yield
            return
        with locked(self.folder.with_name(f".{self.folder.name}.lock")):
            yield


def limit_examples(examples: Sequence, limit: int | None, seed: int) -> Sequence:
    """The first `limit` of the examples in an order drawn with seed; a larger limit holds the smaller one's examples."""
    if limit is None or limit >= len(examples):
        return examples
    order = np.random.default_rng([seed, len(examples)]).permutation(len(examples))[:limit]
    return [examples[i] for i in sorted(order)]


def fingerprint_of(data: TaskData) -> str:
    """Digest of all labelled examples: a cell whose files have changed since is run again."""
    return digest_parts(data.label_names, {"train": data.train, **data.parts})


def digest_parts(label_names: Sequence[str], parts: dict[str, Sequence]) -> str:
    """Digest of the examples of these parts, in their order."""
    digest = blake2b(digest_size=16)
    for name, examples in parts.items():
        digest.update(f"{name} {label_names}".encode())
        document = ()
        for example in examples:
            values = example._asdict()
            if (around := values.pop("document", ())) is not document:  # once for all of its sentences
                digest.update(repr(document := around).encode("utf-8", "surrogatepass"))
            digest.update(repr(tuple(values.values())).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def run_cell(cell: Cell, measure: Measure, subject: Subject) -> dict:
    """Measure, and write the cell's folder. A run without a number is recorded as failed."""
    started = time.monotonic()
    record = {"status": "finished", "seed": cell.seed, **measure.settings(subject), "examples_fingerprint": cell.fingerprint}
    outcome = Outcome({}, [])
    try:
        outcome = measure(subject, cell.seed)
    except Failed as error:
        record |= {"status": "failed", "reason": str(error)}
    else:
        record |= {"metrics": outcome.metrics, "collapsed": outcome.collapsed, **outcome.facts}
        record |= {"unlabelled_fingerprint": cell.unlabelled} if cell.unlabelled else {}
    record["seconds"] = round(time.monotonic() - started, 3)
    _write(cell, record, outcome)
    return record


def fail_cell(cell: Cell, reason: str) -> dict:
    """Record that a cell cannot be run."""
    record = {"status": "failed", "seed": cell.seed, "examples_fingerprint": cell.fingerprint, "reason": reason, "seconds": 0.0}
    _write(cell, record, Outcome({}, []))
    return record


def _write(cell: Cell, record: dict, outcome: Outcome) -> None:
    folder = cell.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT).unlink(missing_ok=True)
    with (folder / PREDICTIONS).open("w", encoding="utf-8") as file:
        for line in outcome.predictions:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    if cell.unlabelled:
        (folder / UNLABELLED).write_text(json.dumps(outcome.unlabelled), encoding="utf-8")
    if cell.keeps_encoder and outcome.encoder is not None:
        _save_encoder(outcome.encoder, folder)
    write_text(folder / RESULT, json.dumps(record, indent=1) + "\n")


def _save_encoder(encoder: nn.Module, folder: Path) -> None:
    from safetensors.torch import save_model

    save_model(encoder, str(folder / ENCODER))
