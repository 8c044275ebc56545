"""Cells: one measurement for each task, seed and start (pretrained or floor), run once and kept.

    evaluation/TASK/seed_N-KEY/pretrained/  result.json         status, metrics, what was cut, seconds
                               floor/       predictions.jsonl   one line for each evaluated example, in the order of its part

result.json is written last, so a cell that was interrupted is run again; so is a failed one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from mlm_lab.evaluation.measures.measure import Failed, Measure, Subject
from mlm_lab.evaluation.task import TaskData

RESULT, PREDICTIONS = "result.json", "predictions.jsonl"


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


def run_cell(folder: Path, measure: Measure, subject: Subject, seed: int, fingerprint: str) -> dict:
    """Measure, and write the cell's folder. A run without a number, or one that does not fit in memory, is recorded as failed.

    fingerprint: digest of the examples.
    """
    import torch

    started = time.monotonic()
    record = {"status": "finished", "seed": seed, **measure.settings(subject), "examples_fingerprint": fingerprint}
    predictions = []
    try:
        outcome = measure(subject, seed)
    except (Failed, torch.OutOfMemoryError) as error:
        record |= {"status": "failed", "reason": str(error)}
    else:
        record |= {"metrics": outcome.metrics, "collapsed": outcome.collapsed, **outcome.facts}
        predictions = outcome.predictions
    record["seconds"] = round(time.monotonic() - started, 3)
    _write(folder, record, predictions)
    return record


def _write(folder: Path, record: dict, predictions: Sequence[dict]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT).unlink(missing_ok=True)
    with (folder / PREDICTIONS).open("w", encoding="utf-8") as file:
        for line in predictions:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    temporary = folder / f"{RESULT}.tmp"
    temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, folder / RESULT)
