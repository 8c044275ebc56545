"""Positions become examples: each once an epoch, the same whatever the ranks, from any position on."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.sampler import Sampler, rank_share


@dataclass(frozen=True)
class Examples:
    """A plan that has only a size."""

    size: int
    redrawn: bool = False
    epoch: int = 0

    def __len__(self) -> int:
        return self.size


def fixed_plan(epoch: int) -> Examples:
    assert epoch == 0, "a plan that is not redrawn is made once"
    return Examples(17)


def redrawn_plan(epoch: int) -> Examples:
    return Examples(15 + epoch % 3, redrawn=True, epoch=epoch)


@pytest.mark.parametrize("plans", [fixed_plan, redrawn_plan])
def test_an_epoch_holds_each_example_once(plans) -> None:
    sampler = Sampler(plans, Draws(3, "train"))
    keys = sampler.keys(np.arange(200))
    assert keys.position.tolist() == list(range(200))
    assert (np.diff(keys.epoch) >= 0).all()
    orders = set()
    for epoch in range(keys.epoch[-1]):
        index = keys.index[keys.epoch == epoch]
        assert sorted(index) == list(range(len(sampler.plan(epoch))))
        orders.add(tuple(index))
    assert len(orders) == keys.epoch[-1], "each epoch has an order of its own"


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.booleans())
def test_trap_29_the_sampler_starts_anywhere(positions: list[int], redrawn: bool) -> None:
    plans = redrawn_plan if redrawn else fixed_plan
    straight = Sampler(plans, Draws(3, "train")).keys(np.arange(301))
    resumed = Sampler(plans, Draws(3, "train")).keys(np.asarray(positions))
    assert (resumed.epoch == straight.epoch[positions]).all()
    assert (resumed.index == straight.index[positions]).all()


def test_the_order_depends_on_its_seed_alone() -> None:
    def order(seed: int, split: str = "train") -> list[int]:
        return Sampler(fixed_plan, Draws(seed, split)).keys(np.arange(17)).index.tolist()

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0) != order(0, "validation")
    assert Sampler(fixed_plan, Draws(0, "train"), shuffled=False).keys(np.arange(17)).index.tolist() == list(range(17))


def test_parts_of_a_batch_that_crosses_epochs() -> None:
    sampler = Sampler(redrawn_plan, Draws(0, "train"))
    parts = list(sampler.parts(np.arange(10, 34)))
    assert [plan.epoch for plan, _ in parts] == [0, 1, 2]
    assert np.concatenate([keys.position for _, keys in parts]).tolist() == list(range(10, 34))
    assert all((keys.index < len(plan)).all() for plan, keys in parts)
    ((plan, keys),) = Sampler(fixed_plan, Draws(0, "train")).parts(np.arange(10, 30))
    assert len(plan) == 17 and len(keys) == 20


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [8, 9, 2])
def test_trap_30_rank_shares_are_complete_and_disjoint(world_size: int, batch_size: int) -> None:
    shares = [[rank_share(step, batch_size, rank, world_size) for rank in range(world_size)] for step in range(5)]
    steps = [np.concatenate(step) for step in shares]
    assert [step.tolist() for step in steps] == [list(range(number * batch_size, (number + 1) * batch_size)) for number in range(5)]
    assert all(max(map(len, step)) - min(map(len, step)) <= 1 for step in shares)


@pytest.mark.parametrize("plans", [fixed_plan, redrawn_plan])
def test_a_sampler_travels_to_worker_processes(plans) -> None:
    sampler = Sampler(plans, Draws(0, "train"))
    before = sampler.keys(np.arange(50)).index
    assert (pickle.loads(pickle.dumps(sampler)).keys(np.arange(50)).index == before).all()
