"""Held-out loss under keys that never change, so that every run and every step is measured on the same masks: the objective's own recipe
(val/...) and its probes, such as 15 % with 80/10/10 (probe/mlm_15_...)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.corruption.replacement import KIND_NAMES, MASKED
from mlm_lab.errors import require
from mlm_lab.types import IGNORE_INDEX, Batch, ExampleKeys, Objective, ObjectiveModule

if TYPE_CHECKING:
    import torch

    from mlm_lab.data.token_store import TokenStore

VALIDATION_SEED = 0
"""Seed of the held-out masks: not the run's."""
FURTHER_PROBES = 0.25
"""Share of the rows on which probes after the first are measured: at 40 % they then have two thirds of the targets that the first has at
15 % on all rows."""
MOST_ROWS = 64
"""Of a held-out batch, which is computed at once whatever the size of a step: more are no faster, and a step's may be in the thousands."""
WATCHES = 5
"""Looks at the plateau (`training.plateau`) for each validation."""


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

    def watch_interval(self, total_steps: int) -> int:
        """Steps between looks at the plateau."""
        return max(1, self.interval(total_steps) // WATCHES)


class HeldOut:
    """The held-out batches of a run, made once.

    Attributes:
        batches: recipe -> its batches; "" is the objective's own recipe, else a probe's name.
        probe: the first probe, which is measured on all rows; None where there is none.
        trains_masks: whether some of the own recipe's targets are masked. If not, the model has never been asked what a mask token hides,
            and probes have no figure for masked targets, nor one for all.
    """

    def __init__(self, objective: Objective, store: TokenStore, max_length: int, sequences: int, batch_size: int):
        """store: the validation split. batch_size: rows of a batch, MOST_ROWS of them at most."""
        batch_size = min(batch_size, MOST_ROWS)
        self.batches: dict[str, list[Batch]] = {}
        probes = objective.probes()
        self.probe = next(iter(probes), None)
        for name, recipe in {"": objective, **probes}.items():
            plan = recipe.plan(store, max_length, Draws(seed=VALIDATION_SEED, split="validation"))
            wanted = sequences if name in ("", self.probe) else max(1, round(FURTHER_PROBES * sequences))
            rows = np.linspace(0, len(plan), min(wanted, len(plan)), endpoint=False).astype(np.int64)
            parts = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
            self.batches[name] = [
                recipe.make_batch(store, plan, ExampleKeys(position=part, epoch=np.zeros_like(part), index=part)) for part in parts
            ]
        if self.probe is not None and _alike(self.batches[""], self.batches[self.probe]):
            self.batches[self.probe] = self.batches[""]  # the run's own recipe is the probe's: measured once
        self.trains_masks = any((batch["label_kinds"] == MASKED).any() for batch in self.batches[""] if "label_kinds" in batch)

    def labels(self, name: str) -> np.ndarray:
        """(N,) int64: all targets of a recipe."""
        labels = np.concatenate([batch["labels"].ravel() for batch in self.batches[name]])
        return labels[labels != IGNORE_INDEX]


def _alike(some: list[Batch], others: list[Batch]) -> bool:
    return len(some) == len(others) and all(
        one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
        for one, other in zip(some, others, strict=True)
    )


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
    from mlm_lab.training.metrics import averages

    values: dict[str, float] = {}
    measured: dict[int, dict[str, tuple[float, float]]] = {}
    for name, batches in held_out.batches.items():
        if id(batches) not in measured:
            measured[id(batches)] = measure(module, batches, device, rank=rank, world_size=world_size, reduce=reduce, context=context)
        fetched = measured[id(batches)]
        weights = dict.fromkeys(module.loss_weights, 1.0) if name else module.loss_weights  # an arm's weights are not its probes'
        values |= _named(name, averages(fetched, weights, module.token_loss), held_out.trains_masks)
    return values


def measure(
    module: ObjectiveModule,
    batches: Iterable[Batch],
    device: torch.device,
    *,
    rank: int,
    world_size: int,
    reduce: Callable[[torch.Tensor], torch.Tensor],
    context: Callable[[], AbstractContextManager],
) -> dict[str, tuple[float, float]]:
    """Losses and metrics of a module over batches as (sum, count), as `metrics.Meter` fetches them; arguments as for `evaluate`."""
    import torch

    from mlm_lab.training.metrics import LOSS_PREFIX, Meter
    from mlm_lab.training.xla import close_step

    was_training = module.training
    module.eval()
    meter, rows = Meter(), 0
    with torch.no_grad(), context():
        for batch in batches:
            part = {key: value[rank::world_size] for key, value in batch.items()}
            rows = max(rows, len(part["input_ids"]))
            if module.static_shapes:
                part = fill_up(part, rows)
            tensors = {key: torch.from_numpy(value).to(device) for key, value in part.items()}
            output = module(tensors)
            for loss, count in module.target_counts(tensors).items():
                meter.add(f"{LOSS_PREFIX}{loss}", output.losses[loss], count)
            meter.add_all(output.metrics)
            close_step(device)  # each batch by itself: the same graph
    module.train(was_training)
    return meter.fetch(reduce)


def fill_up(batch: Batch, rows: int) -> Batch:
    """The batch with so many rows: those that it lacks are empty (`types.Batch`) and count for nothing."""

    def filled(name: str, array: np.ndarray) -> np.ndarray:
        nothing = IGNORE_INDEX if name == "labels" or name.endswith("_label") else 0
        return np.concatenate([array, np.full((rows - len(array), *array.shape[1:]), nothing, dtype=array.dtype)])

    return {name: filled(name, array) for name, array in batch.items()}


def _named(probe: str, values: Mapping[str, float], trains_masks: bool) -> dict[str, float]:
    """val/loss, val/mlm_accuracy, ...; of a probe, whose name begins with what it measures, its own loss, perplexity and accuracy and not
    those of other losses: probe/mlm_15_loss, probe/mlm_15_perplexity, probe/mlm_15_accuracy, and those of its masked, random and kept
    targets: probe/mlm_15_masked_loss."""
    if not probe:
        return {f"val/{name}": value for name, value in values.items()}
    from mlm_lab.training.metrics import perplexity

    family = probe.split("_")[0]
    own = {"loss": values.get(f"{family}_loss", values["loss"]), "accuracy": values[f"{family}_accuracy"]}
    for word in KIND_NAMES.values():
        parts = (f"{word}_loss", f"{word}_accuracy")
        own |= {part: values[f"{family}_{part}"] for part in parts if f"{family}_{part}" in values}
    own["perplexity"] = perplexity(own["loss"])
    unasked = set() if trains_masks else {"loss", "accuracy", "perplexity", f"{KIND_NAMES[MASKED]}_loss", f"{KIND_NAMES[MASKED]}_accuracy"}
    return {f"probe/{probe}_{name}": value for name, value in own.items() if name not in unasked}
