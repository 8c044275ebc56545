"""Held-out loss under keys that never change, so that every run and every step is measured on the same masks: the objective's own recipe
(val/...) and its probes, such as 15 % with 80/10/10 (probe/mlm_15_...), beside what token frequencies reach on the probe's targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.errors import require
from mlm_lab.types import IGNORE_INDEX, Batch, ExampleKeys, Objective, ObjectiveModule

if TYPE_CHECKING:
    import torch

    from mlm_lab.data.token_store import TokenStore

VALIDATION_SEED = 0
"""Seed of the held-out masks: not the run's."""
PLATEAU_MARGIN = 0.1
"""A model has left the unigram plateau when its probe loss is this far (nats) below the unigram's."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """When and on how much held-out text the run is measured."""

    every_steps: int | None
    """Steps between validations; null: ten times a run. The last step always has one."""
    sequences: int
    """Held-out rows, the same ones with the same masks each time, spread evenly over the split; all where there are fewer."""

    def __post_init__(self) -> None:
        require(
            ("every_steps", self.every_steps, self.every_steps is None or self.every_steps >= 1, "at least 1, or null"),
            ("sequences", self.sequences, self.sequences >= 1, "at least 1"),
        )

    def interval(self, total_steps: int) -> int:
        return self.every_steps or max(1, -(-total_steps // 10))


class HeldOut:
    """The held-out batches of a run, made once.

    Attributes:
        batches: recipe -> its batches; "" is the objective's own recipe, else a probe's name.
    """

    def __init__(self, objective: Objective, store: TokenStore, max_length: int, sequences: int, batch_size: int):
        """store: the validation split. batch_size: rows of a batch."""
        self.batches: dict[str, list[Batch]] = {}
        for name, recipe in {"": objective, **objective.probes()}.items():
            plan = recipe.plan(store, max_length, Draws(seed=VALIDATION_SEED, split="validation"))
            rows = np.linspace(0, len(plan), min(sequences, len(plan)), endpoint=False).astype(np.int64)
            parts = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
            self.batches[name] = [
                recipe.make_batch(store, plan, ExampleKeys(position=part, epoch=np.zeros_like(part), index=part)) for part in parts
            ]

    @property
    def probe(self) -> str | None:
        """The first probe, beside which the unigram stands."""
        return next((name for name in self.batches if name), None)

    def labels(self, name: str) -> np.ndarray:
        """(N,) int64: all targets of a recipe."""
        labels = np.concatenate([batch["labels"].ravel() for batch in self.batches[name]])
        return labels[labels != IGNORE_INDEX]


def evaluate(
    module: ObjectiveModule,
    held_out: HeldOut,
    device: torch.device,
    *,
    rank: int = 0,
    world_size: int = 1,
    reduce: Callable[[torch.Tensor], torch.Tensor] = lambda sums: sums,
    context: Callable[[], AbstractContextManager] = nullcontext,
) -> dict[str, float]:
    """val/* and probe/* of a module, whose training state is left as it was. The ranks share the rows out: each row is on exactly one.

    reduce: sums a tensor over ranks. context: the run's precision. With the module's static_shapes a last batch that is shorter is filled
    up with empty rows.
    """
    import torch

    from mlm_lab.training.metrics import LOSS_PREFIX, Meter, averages

    was_training = module.training
    module.eval()
    values: dict[str, float] = {}
    with torch.no_grad(), context():
        for name, batches in held_out.batches.items():
            meter = Meter()
            for batch in batches:
                part = {key: value[rank::world_size] for key, value in batch.items()}
                if module.static_shapes:
                    part = fill_up(part, len(batches[0]["input_ids"][rank::world_size]))
                tensors = {key: torch.from_numpy(value).to(device) for key, value in part.items()}
                output = module(tensors)
                for loss, count in module.target_counts(tensors).items():
                    meter.add(f"{LOSS_PREFIX}{loss}", output.losses[loss], count)
                meter.add_all(output.metrics)
            weights = dict.fromkeys(module.loss_weights, 1.0) if name else module.loss_weights  # an arm's weights are not its probes'
            values |= _named(name, averages(meter.fetch(reduce), weights, module.token_loss))
    module.train(was_training)
    return values


def fill_up(batch: Batch, rows: int) -> Batch:
    """The batch with so many rows: those that it lacks are empty (`types.Batch`) and count for nothing."""

    def filled(name: str, array: np.ndarray) -> np.ndarray:
        nothing = IGNORE_INDEX if name == "labels" or name.endswith("_label") else 0
        return np.concatenate([array, np.full((rows - len(array), *array.shape[1:]), nothing, dtype=array.dtype)])

    return {name: filled(name, array) for name, array in batch.items()}


def _named(probe: str, values: Mapping[str, float]) -> dict[str, float]:
    """val/loss, val/mlm_accuracy, ...; of a probe, whose name begins with what it measures, its own loss and accuracy and not those of
    other losses: probe/mlm_15_loss, probe/mlm_15_accuracy."""
    if not probe:
        return {f"val/{name}": value for name, value in values.items()}
    family = probe.split("_")[0]
    own = {"loss": values.get(f"{family}_loss", values["loss"]), "accuracy": values[f"{family}_accuracy"]}
    return {f"probe/{probe}_{name}": value for name, value in own.items()}


def unigram_baseline(train: TokenStore, labels: np.ndarray) -> dict[str, float]:
    """What token frequencies alone reach on these targets: (count + 1) / (tokens + ordinary ids), and always the commonest token."""
    vocabulary = train.vocabulary
    counts = np.zeros(vocabulary.size, dtype=np.int64)
    for start in range(0, len(train.tokens), 1 << 22):  # bincount widens to int64: a piece at a time
        counts += np.bincount(train.tokens[start : start + (1 << 22)], minlength=vocabulary.size)
    smoothed = np.zeros(vocabulary.size)
    smoothed[vocabulary.ordinary_ids] = counts[vocabulary.ordinary_ids] + 1.0
    smoothed[vocabulary.unk_id] = counts[vocabulary.unk_id] + 1.0  # may be a target: it stands for real text
    log_probability = np.log(np.maximum(smoothed, 1e-300) / smoothed.sum())
    return {
        "unigram_loss": float(-log_probability[labels].mean()),
        "unigram_accuracy": float((labels == smoothed.argmax()).mean()),
    }
