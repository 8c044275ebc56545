"""The order of a run: position -> which example of which epoch. A run resumes from one integer, the number of examples consumed.

Positions count the examples of a run from 0. Each epoch goes through its plan once, in an order of its own (seeds.order); a share of a
step's positions goes to each rank, so that neither the number of ranks nor that of loader workers changes what a step holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.types import ExampleKeys, Plan


class Sampler:
    """Maps positions to examples.

    Args:
        plans: epoch -> the plan of that epoch. Asked for epoch 0 alone unless plans are redrawn.
        order: draws of the order (seeds.order, the split).
        shuffled: False goes through each plan from its start, as validation does.
    """

    def __init__(self, plans: Callable[[int], Plan], order: Draws, *, shuffled: bool = True):
        self._make_plan, self._order, self._shuffled = plans, order, shuffled
        self._plans: dict[int, Plan] = {0: plans(0)}
        self._permutations: dict[int, np.ndarray] = {}
        self._ends = np.zeros(0, dtype=np.int64)  # position after the last of each epoch known so far, for redrawn plans

    def plan(self, epoch: int) -> Plan:
        """The plan of an epoch."""
        return _remember(self._plans, epoch if self._plans[0].redrawn else 0, self._make_plan, keep=0)

    def keys(self, positions: np.ndarray) -> ExampleKeys:
        """(B,) int64 positions, in any order -> the keys of their examples."""
        positions = np.asarray(positions, dtype=np.int64)
        epoch, place = self._locate(positions)
        index = np.empty_like(place)
        for number in np.unique(epoch):
            inside = epoch == number
            index[inside] = self._permutation(int(number))[place[inside]] if self._shuffled else place[inside]
        return ExampleKeys(positions, epoch, index)

    def parts(self, positions: np.ndarray) -> Iterator[tuple[Plan, ExampleKeys]]:
        """The positions as (plan, keys): one part, or one for each epoch that they touch where plans are redrawn."""
        keys = self.keys(positions)
        if not self._plans[0].redrawn:
            yield self._plans[0], keys
            return
        for number in np.unique(keys.epoch):
            inside = keys.epoch == number
            yield self.plan(int(number)), ExampleKeys(keys.position[inside], keys.epoch[inside], keys.index[inside])

    def _locate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(B,) epoch, (B,) place in the epoch's order."""
        if not self._plans[0].redrawn:
            return np.divmod(positions, len(self._plans[0]))
        while len(positions) and (len(self._ends) == 0 or self._ends[-1] <= positions.max()):
            end = (self._ends[-1] if len(self._ends) else 0) + len(self.plan(len(self._ends)))
            self._ends = np.append(self._ends, end)
        epoch = np.searchsorted(self._ends, positions, side="right")
        return epoch, positions - np.append(0, self._ends)[epoch]

    def _permutation(self, epoch: int) -> np.ndarray:
        def make(number: int) -> np.ndarray:
            return replace(self._order, epoch=number).permutation("order", len(self.plan(number)))

        return _remember(self._permutations, epoch, make)


def _remember(known: dict[int, Any], epoch: int, make: Callable[[int], Any], keep: int | None = None) -> Any:
    """known[epoch], made if it is not there. Only the last two stay (a batch touches two epochs at a time), and `keep`."""
    if epoch not in known:
        known[epoch] = make(epoch)
        for old in [number for number in known if number != keep][:-2]:
            del known[old]
    return known[epoch]


def rank_share(step: int, batch_size: int, rank: int, world_size: int) -> np.ndarray:
    """(b,) int64: the positions of optimiser step `step` that go to a rank; over the ranks, all of the step's in order, each once.

    Shares differ by one where batch_size does not divide.
    """
    first, last = (batch_size * number // world_size for number in (rank, rank + 1))
    return step * batch_size + np.arange(first, last, dtype=np.int64)
