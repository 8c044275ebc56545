"""A run as a map from optimiser step to batch: dataset[step] is this rank's share, whichever process makes it and wherever a run begins.

step -> its phase -> positions of the rank in it -> sampler -> example keys -> objective.make_batch -> arrays
"""

from __future__ import annotations

import signal
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.sampler import Sampler, rank_share
from mlm_lab.data.token_store import TokenStore
from mlm_lab.training.phases import Phase
from mlm_lab.types import Batch, Objective, Plan

ATTENTION_MASKS = ("attention_mask", "decoder_attention_mask")
"""Each is 0 where a position is padding."""
SHOWN = ("mask_share", "random_share", "keep_share")
"""What the input shows at a labelled position, in the order of the objectives' label_kinds (1, 2, 3)."""


class PhaseDataset(Dataset):
    """Batches of the optimiser steps of one phase, and what there is to say about them as (sum, count) pairs.

    Pickles without its sampler, which each worker process makes for itself: plans are functions of the store and the seeds.
    """

    def __init__(
        self,
        objective: Objective,
        store: TokenStore,
        phase: Phase,
        *,
        order_seed: int,
        corruption_seed: int,
        first_step: int = 0,
        first_example: int = 0,
        horizon: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ):
        """first_step, first_example: where the phase begins in the run. horizon: examples of the whole run, for scheduled ratios."""
        self.objective, self.store, self.phase = objective, store, phase
        self.first_step, self.first_example = first_step, first_example
        split = f"{store.split}/{phase.number}" if phase.number else store.split  # another phase draws anew
        self.order = Draws(seed=order_seed, split=split)
        self.draws = Draws(seed=corruption_seed, split=split, horizon=horizon)
        self.rank, self.world_size = rank, world_size
        self._sampler: Sampler | None = None

    @property
    def sampler(self) -> Sampler:
        if self._sampler is None:
            self._sampler = Sampler(self._plan, self.order)
        return self._sampler

    def _plan(self, epoch: int) -> Plan:
        return self.objective.plan(self.store, self.phase.max_length, replace(self.draws, epoch=epoch))

    def __getitem__(self, step: int) -> tuple[Batch, Batch]:
        """step: of the run."""
        positions = rank_share(step - self.first_step, self.phase.batch_size, self.rank, self.world_size)
        parts = [
            self.objective.make_batch(self.store, plan, replace(keys, position=keys.position + self.first_example))
            for plan, keys in self.sampler.parts(positions)
        ]
        batch = parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return batch, batch_facts(batch)

    def describe(self, step: int) -> dict[str, Any]:
        """What a step holds, over all ranks: the length of its rows, the split that its draws are keyed by, and each example's keys."""
        keys = self.sampler.keys(rank_share(step - self.first_step, self.phase.batch_size, 0, 1))
        numbers = {"position": keys.position + self.first_example, "epoch": keys.epoch, "index": keys.index}
        return {"max_length": self.phase.max_length, "split": self.draws.split, **{name: part.tolist() for name, part in numbers.items()}}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sampler": None}


class StepDataset(Dataset):
    """Batches of all optimiser steps of a run: each phase's own."""

    def __init__(self, parts: Sequence[PhaseDataset]):
        self.parts = list(parts)

    def __getitem__(self, step: int) -> tuple[Batch, Batch]:
        return self._part(step)[step]

    def describe(self, step: int) -> dict[str, Any]:
        """As of its phase."""
        return self._part(step).describe(step)

    def _part(self, step: int) -> PhaseDataset:
        return self.parts[bisect_right([part.first_step for part in self.parts], step) - 1]


def step_loader(
    dataset: StepDataset, start: int, stop: int, num_workers: int, pin_memory: bool, timeout_seconds: float = 0
) -> DataLoader[Any]:
    """The steps start .. stop - 1 in order. There is no state to restore: a run resumes by starting here. timeout_seconds: how long to wait
    for a worker; 0: for ever."""
    return DataLoader(
        dataset,
        batch_size=None,
        sampler=range(start, stop),
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        pin_memory=pin_memory,
        timeout=timeout_seconds if num_workers else 0,
        worker_init_fn=_leave_signals_to_the_run,
    )


def _leave_signals_to_the_run(worker: int) -> None:
    """Ctrl-C reaches every process of a terminal: workers go on, since the step that the run finishes needs their batches."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def batch_facts(batch: Batch) -> Batch:
    """name -> (2,) float64 sum and count: padding among all inputs, of encoder and decoder; totals of the step (count 1); what the input
    shows at the labelled positions, where it is corrupted there; the share of each frequency bin, 0 the commonest tokens, among the
    selected, where the recipe weighs them."""
    masks = [batch[name] for name in ATTENTION_MASKS if name in batch]
    facts = {"padded_share": (sum(int((mask == 0).sum()) for mask in masks), sum(mask.size for mask in masks))}
    for name in ("corpus_tokens", "dropped_slots"):
        if name in batch:
            facts[name] = (int(batch[name].sum()), 1)
    if "label_kinds" in batch:
        shown = np.bincount(batch["label_kinds"].ravel(), minlength=4)[1:]
        facts |= {name: (int(count), int(shown.sum())) for name, count in zip(SHOWN, shown, strict=True)}
    if "selected_by_frequency" in batch:
        by_bin = batch["selected_by_frequency"].sum(axis=0)
        facts |= {f"selected_share_bin_{number}": (int(count), int(by_bin.sum())) for number, count in enumerate(by_bin)}
    return {name: np.asarray(pair, dtype=np.float64) for name, pair in facts.items()}
