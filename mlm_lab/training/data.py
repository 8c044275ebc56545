"""A run as a map from optimiser step to batch: dataset[step] is this rank's share, whichever process makes it and wherever a run begins.

step -> positions of the rank -> sampler -> example keys -> objective.make_batch -> arrays
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.sampler import Sampler, rank_share
from mlm_lab.data.token_store import TokenStore
from mlm_lab.types import IGNORE_INDEX, Batch, Objective, Plan

SHOWN = ("mask_share", "random_share", "keep_share")
"""What the input shows at a labelled position, in the order of the objectives' label_kinds (1, 2, 3)."""


class StepDataset(Dataset):
    """Batches of optimiser steps, and what there is to say about them as (sum, count) pairs.

    Pickles without its sampler, which each worker process makes for itself: plans are functions of the store and the seeds.
    """

    def __init__(
        self,
        objective: Objective,
        store: TokenStore,
        *,
        max_length: int,
        batch_size: int,
        order_seed: int,
        corruption_seed: int,
        total_steps: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ):
        """batch_size: sequences of a step over all ranks. total_steps: the run's horizon, which scheduled ratios follow."""
        self.objective, self.store, self.max_length, self.batch_size = objective, store, max_length, batch_size
        self.order = Draws(seed=order_seed, split=store.split)
        self.draws = Draws(seed=corruption_seed, split=store.split, horizon=total_steps and total_steps * batch_size)
        self.rank, self.world_size = rank, world_size
        self._sampler: Sampler | None = None

    @property
    def sampler(self) -> Sampler:
        if self._sampler is None:
            self._sampler = Sampler(self._plan, self.order)
        return self._sampler

    def _plan(self, epoch: int) -> Plan:
        return self.objective.plan(self.store, self.max_length, replace(self.draws, epoch=epoch))

    def __getitem__(self, step: int) -> tuple[Batch, Batch]:
        positions = rank_share(step, self.batch_size, self.rank, self.world_size)
        parts = [self.objective.make_batch(self.store, plan, keys) for plan, keys in self.sampler.parts(positions)]
        batch = parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return batch, batch_facts(batch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sampler": None}


def step_loader(dataset: StepDataset, start: int, stop: int, num_workers: int, pin_memory: bool) -> DataLoader[Any]:
    """The steps start .. stop - 1 in order. There is no state to restore: a run resumes by starting here."""
    return DataLoader(
        dataset,
        batch_size=None,
        sampler=range(start, stop),
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        pin_memory=pin_memory,
        worker_init_fn=_leave_signals_to_the_run,
    )


def _leave_signals_to_the_run(worker: int) -> None:
    """Ctrl-C reaches every process of a terminal: workers go on, since the step that the run finishes needs their batches."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def batch_facts(batch: Batch) -> Batch:
    """name -> (2,) float64 sum and count: padding among all inputs; totals of the step (count 1); what the labelled positions show."""
    supervised = int((batch["labels"] != IGNORE_INDEX).sum())
    facts = {
        "padded_share": (int((batch["attention_mask"] == 0).sum()), batch["attention_mask"].size),
        "supervised_positions": (supervised, 1),
    }
    for name in ("corpus_tokens", "dropped_slots"):
        if name in batch:
            facts[name] = (int(batch[name].sum()), 1)
    if "label_kinds" in batch:
        shown = np.bincount(batch["label_kinds"].ravel(), minlength=4)
        facts |= {name: (int(shown[kind]), supervised) for kind, name in enumerate(SHOWN, start=1)}
    return {name: np.asarray(pair, dtype=np.float64) for name, pair in facts.items()}
