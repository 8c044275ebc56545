"""The plateau watch: when does a run know more than how common each token is?

Small models first learn token frequencies and sit there for a while, some of them for good. A run has left this plateau when its loss has
gone LEFT_SHARE of the way from what the unigram gives to what the two neighbours give (`training.baselines`) on the same held-out targets.

These are the masked targets of the first probe, the same for every arm: where a token is shown, a model that learns to copy it goes 0.4
nats below the unigram (80/10/10, all targets) and knows nothing of context. A recipe that never masks is watched on its own random targets,
with baselines that know, as the model does, which token stands in the place and how often such a token is the right one. A model without
probes is watched on its own targets. Where there is none of these (a pair loss alone, a recipe that keeps every token), nothing is watched.

The loss is looked at WATCHES times for each validation (fifty times a run) on ROWS rows, until it has left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlm_lab.corruption.replacement import KEPT, MASKED, RANDOM
from mlm_lab.training.baselines import NOTHING, Frequencies, Targets, find_targets
from mlm_lab.training.validation import HeldOut, measure
from mlm_lab.types import IGNORE_INDEX, Batch, ObjectiveModule, Vocabulary

if TYPE_CHECKING:
    import torch

    from mlm_lab.data.token_store import TokenStore

LEFT_SHARE = 0.25
"""Of the way from the unigram's loss to the neighbours'. On pydocs at 2 x 128 arms that stay on the plateau come 2 to 7 % of the way in 0.9
million tokens, arms that leave it 65 %, in one stretch."""
ROWS = 64
"""Held-out rows of a look, in whole batches: 800 masked targets at a row length of 128. With 16 rows the step found is up to 40 % off, with
64 up to 8 %."""


@dataclass(frozen=True)
class PlateauWatch:
    """What a run is held against, and the few batches on which it is looked at."""

    baseline: dict[str, float]
    """unigram_loss, unigram_accuracy, neighbour_loss, and plateau_mark, the loss at which a run has left: on all held-out rows."""
    batches: list[Batch]
    """With labels at the watched targets alone."""
    mark: float
    """The loss at which a run has left, on these batches."""

    @classmethod
    def over(cls, held_out: HeldOut, train: TokenStore) -> PlateauWatch | None:
        """None where nothing can be watched. One pass over the training text, a second for three million tokens."""
        recipe, kind = _watched(held_out)
        batches = [_with_labels_of(kind, batch, train.vocabulary) for batch in held_out.batches[recipe]]
        targets = _join([find_targets(batch, train.vocabulary) for batch in batches])
        if not len(targets.ids):
            return None
        frequencies = Frequencies(train, targets)
        seen = _Seen.of(held_out.batches[""]) if kind == RANDOM else None
        few = np.linspace(0, len(batches), min(-(-ROWS // len(batches[0]["labels"])), len(batches)), endpoint=False).astype(int)
        chosen = [batches[number] for number in few]
        losses = _losses(frequencies, targets, seen)
        losses_there = _losses(frequencies, _join([find_targets(batch, train.vocabulary) for batch in chosen]), seen)
        baseline = {
            "unigram_loss": losses[0],
            "unigram_accuracy": float((targets.ids == frequencies.unigram.argmax()).mean()),
            "neighbour_loss": losses[1],
            "plateau_mark": _mark(*losses),
        }
        return cls(baseline, chosen, _mark(*losses_there))

    def has_left(
        self,
        module: ObjectiveModule,
        device: torch.device,
        *,
        rank: int = 0,
        world_size: int = 1,
        reduce: Callable[[torch.Tensor], torch.Tensor] = lambda sums: sums,
        context: Callable[[], AbstractContextManager] = nullcontext,
    ) -> bool:
        """Whether the loss is below the mark; arguments as for `validation.evaluate`. Every rank calls it and gets the same answer."""
        from mlm_lab.training.metrics import LOSS_PREFIX

        fetched = measure(module, self.batches, device, rank=rank, world_size=world_size, reduce=reduce, context=context)
        total, count = fetched[f"{LOSS_PREFIX}{next(iter(module.loss_weights))}"]  # the first loss is the one on tokens
        return total / count < self.mark


class _Seen(NamedTuple):
    """Shares of the targets that the input shows, by what it shows."""

    random: float
    kept: float

    @classmethod
    def of(cls, batches: list[Batch]) -> _Seen:
        counts = sum(np.bincount(batch["label_kinds"].ravel(), minlength=4) for batch in batches)
        return cls(counts[RANDOM] / counts[1:].sum(), counts[KEPT] / counts[1:].sum())


def _watched(held_out: HeldOut) -> tuple[str, int | None]:
    """The recipe whose held-out rows are watched, and which kind of target in them (None: all)."""
    if held_out.probe is not None and held_out.trains_masks:
        return held_out.probe, MASKED
    return "", RANDOM if "label_kinds" in held_out.batches[""][0] else None


def _with_labels_of(kind: int | None, batch: Batch, vocabulary: Vocabulary) -> Batch:
    """The batch with labels at targets of this kind that are text: sentinels and [SEP] come in order and teach little."""
    labels = batch["labels"]
    no_text = vocabulary.is_special.copy()
    no_text[vocabulary.unk_id] = False
    kept = (labels != IGNORE_INDEX) & ~no_text[np.maximum(labels, 0)]
    if kind is not None:
        kept &= batch["label_kinds"] == kind
    rest = {name: array for name, array in batch.items() if name != "label_kinds"}
    return {**rest, "labels": np.where(kept, labels, IGNORE_INDEX)}


def _join(parts: list[Targets]) -> Targets:
    return Targets(*map(np.concatenate, zip(*parts, strict=True)))


def _losses(frequencies: Frequencies, targets: Targets, seen: _Seen | None) -> tuple[float, float]:
    """Mean loss in nats of the unigram, and of the neighbours.

    seen: what a predictor knows of the token w in the target's place: it is the right one with probability kept p(w) / (kept p(w) + random
    / V), p being what the predictor says without it.
    """
    nothing = np.full_like(targets.left, NOTHING)
    found = []
    for left, right in ((nothing, nothing), (targets.left, targets.right)):
        probability = frequencies.beside(targets.ids, left, right)
        if seen is not None:
            shown = seen.kept * frequencies.beside(targets.own, left, right)
            right_one = shown / (shown + seen.random / len(frequencies.vocabulary.ordinary_ids))
            probability = np.where(targets.ids == targets.own, right_one, 0.0) + (1 - right_one) * probability
        found.append(float(-np.log(probability).mean()))
    return found[0], found[1]


def _mark(unigram: float, neighbours: float) -> float:
    return unigram + LEFT_SHARE * (neighbours - unigram)
