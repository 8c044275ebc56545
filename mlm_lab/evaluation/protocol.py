"""Which setting of a grid a task is fine-tuned with, and on what it was chosen.

fixed     one setting for every run
paper     every setting, the best on dev, which is then reported: what papers do, and higher than what it estimates
heldout   every setting learnt on a part of train, the best on the rest of it; then the whole of train is learnt with it, and dev reported
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import product
from typing import TYPE_CHECKING

from mlm_lab.errors import UserError, require

if TYPE_CHECKING:
    from mlm_lab.evaluation.settings import Evaluation
    from mlm_lab.evaluation.task import TaskData

PROTOCOLS = {
    "fixed": "one setting, chosen beforehand",
    "paper": "selected on its reporting set",
    "heldout": "selected on a part of train",
}
"""Each with what the summary says of it."""
HELDOUT = "heldout"
MULTIPLES = (0.5, 1.0, 2.0)
"""Of the learning rate that an encoder's width asks for: the grid's rates where it names none."""

Setting = tuple[tuple[str, object], ...]
"""Fields of `Evaluation` with the values that they take (floor_learning_rate: one rate); () leaves it as it is."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Every combination of these is a setting. What a task sets itself, its grid does not vary."""

    learning_rates: tuple[float, ...] | None
    """Peak learning rates; null: half, once and twice evaluation.learning_rate, or the rate that the encoder's width asks for."""
    batch_sizes: tuple[int, ...]
    """Examples of an optimiser step."""
    epochs: tuple[int, ...]
    """Passes over the training examples."""
    seeds: int
    """Fine-tuning seeds of each setting on which the choice rests, by their median; the chosen one has all of evaluation.seeds."""
    heldout_share: float
    """Part of train on which protocol=heldout chooses, cut by a hash of the text: the same examples on every machine."""

    def __post_init__(self) -> None:
        rates = self.learning_rates
        require(
            ("learning_rates", rates, rates is None or (len(rates) > 0 and min(rates) > 0), "null, or a list of numbers above 0"),
            ("batch_sizes", self.batch_sizes, len(self.batch_sizes) > 0 and min(self.batch_sizes) >= 1, "a list of numbers of at least 1"),
            ("epochs", self.epochs, len(self.epochs) > 0 and min(self.epochs) >= 1, "a list of numbers of at least 1"),
            ("seeds", self.seeds, self.seeds >= 1, "at least 1"),
            ("heldout_share", self.heldout_share, 0 < self.heldout_share < 1, "between 0 and 1"),
        )

    def rates(self, peak_rate: float) -> tuple[float, ...]:
        """The learning rates. peak_rate: what an encoder of this width is trained with where nothing else is said."""
        return self.learning_rates or tuple(multiple * peak_rate for multiple in MULTIPLES)

    def settings(self, peak_rate: float, own: Iterable[str]) -> list[Setting]:
        """Each combination once, as listed. own: the fields that the task sets itself."""
        axes = {"learning_rate": self.rates(peak_rate), "batch_size": self.batch_sizes, "epochs": self.epochs}
        varied = {name: values for name, values in axes.items() if name not in set(own)}
        return list(dict.fromkeys(tuple(zip(varied, values, strict=True)) for values in product(*varied.values())))


def with_setting(evaluation: Evaluation, setting: Setting) -> Evaluation:
    """The evaluation with this setting."""
    return replace(evaluation, **{name: (value,) if name == "floor_learning_rate" else value for name, value in setting})


def best_setting(tried: Mapping[Setting, Sequence[dict]]) -> Setting:
    """The setting with the highest median of its records' main metric (the first one). The first of equal ones; one without a number, for
    which every run failed or the metric is undefined, only where no setting has one."""
    return max(tried, key=lambda setting: -math.inf if (median := median_score(tried[setting])) is None else median)


def median_score(records: Sequence[dict]) -> float | None:
    """The median of the main metric over the finished runs; None where there is none."""
    values = [next(iter(record["metrics"].values())) for record in records if record["status"] == "finished"]
    return statistics.median(values) if values and None not in values else None


def carve(data: TaskData, share: float, task: str) -> TaskData:
    """The task with a part of its training examples as the evaluated part, and without its own. Examples of one document, or of one first
    text, stay on one side.

    Raises:
        UserError: one of the two parts would be empty.
    """
    held = [_hash_share(example) < share for example in data.train]
    train = [example for example, is_held in zip(data.train, held, strict=True) if not is_held]
    dev = [example for example, is_held in zip(data.train, held, strict=True) if is_held]
    if not train or not dev:
        raise UserError(
            f"task {task}: too few training examples to choose a setting on a part of them",
            given=f"{len(data.train)} examples, evaluation.grid.heldout_share={share}",
            fix="another share, or evaluation.protocol=fixed with one evaluation.floor_learning_rate",
        )
    return replace(data, train=train, dev=dev, extra={}, unlabelled={}, notes=())


def _hash_share(example: Sequence) -> float:
    """The example's document, or its first text, as a number in [0, 1)."""
    group = getattr(example, "document", ()) or example[0]
    return int.from_bytes(blake2b(repr(group).encode("utf-8", "surrogatepass"), digest_size=7).digest(), "big") / 2**56
