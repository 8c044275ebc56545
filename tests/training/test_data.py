"""Steps as a map: any start, any number of ranks and workers give the same batches."""

from __future__ import annotations

import pickle
import signal

import numpy as np
import pytest
from torch.utils.data import Dataset

from mlm_lab.training.data import step_loader
from tests.training.tiny_run import make_config, make_course


@pytest.fixture(scope="module")
def course():
    return make_course(make_config())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_starts_late_gives_the_same_steps(course, workers):
    """traps 29, 30: past an epoch's border too."""
    dataset = course.dataset(40)
    last = 2 * course.rows // 8 + 3
    for start in (0, last - 3):
        steps = list(step_loader(dataset, start, last, workers, pin_memory=False))
        assert len(steps) == last - start
        for number, (batch, facts) in zip(range(start, last), steps, strict=True):
            expected, expected_facts = dataset[number]
            assert all(np.array_equal(batch[name], expected[name]) for name in expected)
            assert all(np.array_equal(facts[name], expected_facts[name]) for name in expected_facts)


class Handlers(Dataset):
    """What a worker process does on Ctrl-C."""

    def __getitem__(self, step: int) -> bool:
        return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_workers_leave_ctrl_c_to_the_run():
    """traps 29: the step in which it arrives is finished, with the batch that a worker is making."""
    assert list(step_loader(Handlers(), 0, 2, 1, pin_memory=False)) == [True, True]


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_a_step_out(course, world_size):
    """traps 30: complete, disjoint, in order."""
    whole = course.dataset(40)[5][0]
    parts = [course.dataset(40, rank, world_size)[5][0] for rank in range(world_size)]
    for name in whole:
        assert np.array_equal(np.concatenate([part[name] for part in parts]), whole[name])


def test_a_dataset_travels_to_another_process(course):
    dataset = course.dataset(40)
    before = dataset[3][0]
    after = pickle.loads(pickle.dumps(dataset))[3][0]
    assert all(np.array_equal(before[name], after[name]) for name in before)
