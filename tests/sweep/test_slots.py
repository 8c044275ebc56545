"""Sharing the machine: the same number of cores for each, none given twice while there are enough."""

from __future__ import annotations

import os

import pytest

from mlm_lab.sweep import slots
from mlm_lab.sweep.slots import share_out


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(("jobs", "threads"), [(1, 8), (2, 4), (3, 2), (8, 1), (12, 1)])
def test_each_gets_as_many_cores_as_the_others(eight_cores: None, jobs: int, threads: int) -> None:
    found = share_out(jobs)
    assert [(len(slot.cpus), slot.threads) for slot in found] == [(threads, threads)] * jobs
    if jobs <= 8:
        assert len({cpu for slot in found for cpu in slot.cpus}) == jobs * threads
    assert found[0].environment == {"OMP_NUM_THREADS": str(threads)}


def test_fewer_threads_may_be_asked_for(eight_cores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert [share_out(jobs)[0].threads for jobs in (1, 2, 8)] == [2, 2, 1]


def test_several_gpus_are_shared_out_too(eight_cores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6,7")
    assert [slot.gpus for slot in share_out(2)] == [("3", "5"), ("6", "7")]
    assert share_out(4)[1].environment["CUDA_VISIBLE_DEVICES"] == "5"
    assert [slot.gpus for slot in share_out(5)][-1] == ("3",), "more jobs than GPUs share them"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert [slot.gpus for slot in share_out(2)] == [(), ()], "all use the one"


def test_a_system_that_cannot_bind_limits_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(slots, "available_cpus", lambda: 4)
    assert [(slot.cpus, slot.threads) for slot in share_out(2)] == [((), 2), ((), 2)]
