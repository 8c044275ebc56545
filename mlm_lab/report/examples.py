"""Seeds x examples, from 10 seeds on: an interval for further seeds and further examples, from the predictions that the runs kept.

    RUN_FOLDER/evaluation/TASK/seed_N-KEY/pretrained/predictions.jsonl   {part, index, gold, prediction}, a line for each example

What comes out is kept in examples.csv under the digest of the weights, so that it outlives the folders and is worked out once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.evaluation.spans import extract_spans
from mlm_lab.report.analysis import LEVEL, MetricResult, Table
from mlm_lab.report.outcomes import seed_of
from mlm_lab.report.rows import Row, number, text
from mlm_lab.statistics import resampling
from mlm_lab.statistics.resampling import FEWEST_SEEDS, resample_seeds_and_examples

if TYPE_CHECKING:
    import numpy as np

FILE = "examples.csv"
COLUMNS = ("metric", "arm", "weights", "difference", "standard_error", "low", "high", "seed_share", "seeds", "examples")
_NUMBERS = COLUMNS[3:]
_TOLERANCE = 0.005
"""How far the score that the predictions give may be from the recorded one, which averages over fine-tuning seeds."""
_DEV = "dev"


@dataclass(frozen=True, kw_only=True)
class OverExamples:
    """A contrast with an interval over seeds and examples."""

    metric: str
    arm: str
    key: str
    """Digest of the weights of both arms' runs."""
    numbers: Mapping[str, float]

    @property
    def row(self) -> Row:
        """Its line of examples.csv."""
        return {"metric": self.metric, "arm": self.arm, "weights": self.key, **{name: text(self.numbers[name]) for name in _NUMBERS}}


def over_examples(
    table: Table,
    baseline: str | None,
    folders: Mapping[str, Path],
    kept: Iterable[Row],
    again: bool = False,
    pilot_seeds: Collection[int] = (),
) -> list[OverExamples]:
    """The contrasts of named evaluations with at least 10 common seeds.

    folders: config_hash -> run folder, of the runs at hand. kept: rows of examples.csv, which serve where they are of the same weights.
    again: work out anew what the folders at hand allow. pilot_seeds: of runs that are in no test.
    """
    known = {(row["metric"], row["arm"], row["weights"]): row for row in kept}
    found = []
    for result in table.metrics:
        for contrast in result.comparison.contrasts if result.comparison is not None else ():
            if contrast.n < FEWEST_SEEDS or baseline is None or "/" not in result.column.metric:
                continue
            arms = [{seed_of(row): row for row in table.by_arm[arm] if seed_of(row) not in pilot_seeds} for arm in (contrast.arm, baseline)]
            rows = [{seed: of_arm[seed] for seed in arms[0] if seed in arms[1]} for of_arm in arms]
            metric, key = result.column.metric, _key(rows)
            old = known.get((metric, contrast.arm, key))
            new = None if old is not None and not again else _resample(result, rows, folders, key)
            if new is not None:
                found.append(OverExamples(metric=metric, arm=contrast.arm, key=key, numbers=new))
            elif old is not None:
                numbers = {name: number(old, name) or 0.0 for name in _NUMBERS}
                found.append(OverExamples(metric=metric, arm=contrast.arm, key=key, numbers=numbers))
    return found


def _key(rows: Sequence[Mapping[int, Row]]) -> str:
    runs = [[row.get("weights_sha256", row["config_hash"]) for row in of_arm.values()] for of_arm in rows]
    return hashlib.sha256(json.dumps(runs).encode()).hexdigest()


def _resample(result: MetricResult, rows: Sequence[Mapping[int, Row]], folders: Mapping[str, Path], key: str) -> dict[str, float] | None:
    """None where the predictions are not all at hand, or are not what the scores were made of."""
    import numpy as np

    metric = result.column.metric
    sums = []
    for of_arm in rows:
        tables = {}
        for seed, row in of_arm.items():
            folder = folders.get(row["config_hash"])
            table = None if folder is None else example_sums(folder, metric, number(row, f"{metric}/n"))
            if table is None or not _agrees(table, metric, number(row, metric)):
                return None
            tables[seed] = table
        sums.append(tables)
    rng = np.random.default_rng([int(key[:12], 16), *metric.encode()])
    try:
        found = resample_seeds_and_examples(*sums, _score_of(metric), rng, level=LEVEL)
    except ValueError:
        return None
    return {name: float(getattr(found, name)) for name in _NUMBERS}


def _agrees(table: np.ndarray, metric: str, recorded: float | None) -> bool:
    return recorded is not None and abs(float(_score_of(metric)(table.sum(axis=0))) - recorded) <= _TOLERANCE


def example_sums(folder: Path, metric: str, cells: float | None) -> np.ndarray | None:
    """(examples, columns): what each example (sentence, for entities) adds to the sums that the metric is made of, over all fine-tuning
    seeds of the run; None where there are no predictions, or no sums for such a metric.

    metric: TASK/METRIC, or TASK/PART/METRIC. cells: how many fine-tuning seeds the score averages over; where the folder holds more (a
    grid of settings), nothing says which were chosen.
    """
    import numpy as np

    task, *part, name = metric.split("/")
    add = _COLUMNS.get(name)
    if add is None:
        return None
    tables = []
    for file in sorted(folder.glob(f"evaluation/{task}/seed_*/pretrained/predictions.jsonl")):
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        chosen = [line for line in lines if line.get("part") == ("/".join(part) or _DEV)]
        try:
            tables.append(np.array([add(line["gold"], line["prediction"]) for line in chosen], dtype=float))
        except (KeyError, TypeError, ValueError):
            return None
    return sum(tables) if tables and len(tables) == cells and len({table.shape for table in tables}) == 1 and tables[0].size else None


def _accuracy(gold: object, prediction: object) -> tuple[float, float]:
    if isinstance(gold, list):
        return sum(ours == theirs for ours, theirs in zip(gold, prediction, strict=True)), len(gold)
    return float(gold == prediction), 1.0


def _f1(gold: object, prediction: object) -> tuple[float, float, float]:
    """Entities of a sentence, or label 1 of an example."""
    if isinstance(gold, list):
        there, found = set(extract_spans(gold)), set(extract_spans(prediction))
        return len(there & found), len(found - there), len(there - found)
    return float(gold == 1 and prediction == 1), float(gold != 1 and prediction == 1), float(gold == 1 and prediction != 1)


def _matthews(gold: object, prediction: object) -> tuple[float, float, float, float]:
    """Of two classes; a third one raises, for its formula is another."""
    if not {gold, prediction} <= {0, 1}:
        raise ValueError("more than two classes")
    return (*_f1(gold, prediction), float(gold == 0 and prediction == 0))


def _pearson(gold: object, prediction: object) -> tuple[float, ...]:
    x, y = float(gold), float(prediction)
    return 1.0, x, y, x * x, y * y, x * y


_COLUMNS: Mapping[str, Callable[[object, object], tuple[float, ...]]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": _matthews,
    "pearson": _pearson,
}
_SCORES = {"accuracy": resampling.mean, "f1": resampling.f1, "matthews": resampling.matthews, "pearson": resampling.pearson}


def _score_of(metric: str) -> Callable[[np.ndarray], np.ndarray]:
    return _SCORES[metric.rpartition("/")[2]]
