"""Each schedule at its corners, and that it is a pure function of the step and the horizon."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm_lab.errors import InvalidFields
from mlm_lab.optim.schedules import WSD, Constant, Cosine, Linear

ALL = {
    "linear": lambda warmup: Linear(warmup_steps=warmup, final_factor=0.1),
    "cosine": lambda warmup: Cosine(warmup_steps=warmup, final_factor=0.1),
    "wsd": lambda warmup: WSD(warmup_steps=warmup, decay_share=0.2, final_factor=0.1),
    "constant": lambda warmup: Constant(warmup_steps=warmup),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("warmup", [10, 0.1])
def test_warm_up_rises_evenly_to_the_peak(name: str, warmup: float):
    factor = ALL[name](warmup).build(100)
    assert [factor(step) for step in range(11)] == pytest.approx([(step + 1) / 11 for step in range(11)])


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd"])
def test_falls_to_the_final_factor_at_the_horizon_and_stays(name: str):
    factor = ALL[name](10).build(100)
    values = [factor(step) for step in range(10, 130)]
    assert values == sorted(values, reverse=True)
    assert factor(100) == pytest.approx(0.1) == factor(1000)


def test_trap_35_the_horizon_comes_from_the_budget():
    assert Linear(warmup_steps=0, final_factor=0.0).build(100)(50) == pytest.approx(0.5)
    assert Linear(warmup_steps=0, final_factor=0.0).build(1000)(500) == pytest.approx(0.5)
    assert Linear(warmup_steps=0.1, final_factor=0.0).build(1000)(100) == 1.0


def test_shapes_between():
    assert Linear(warmup_steps=20, final_factor=0.0).build(100)(60) == pytest.approx(0.5)
    assert Cosine(warmup_steps=20, final_factor=0.0).build(100)(40) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    wsd = WSD(warmup_steps=10, decay_share=0.2, final_factor=0.0).build(100)
    assert wsd(80) == 1.0 and wsd(81) < 1.0 and wsd(85) == pytest.approx(1 - math.sqrt(0.25))
    assert Constant(warmup_steps=0).build(100)(500) == 1.0


@given(st.sampled_from(sorted(ALL)), st.integers(1, 500), st.one_of(st.integers(0, 600), st.floats(0, 0.99)), st.integers(0, 700))
def test_a_factor_is_never_above_one_nor_zero_within_the_run(name: str, horizon: int, warmup: float, step: int):
    factor = ALL[name](float(warmup)).build(horizon)(step)
    assert 0 < factor <= 1


@pytest.mark.parametrize("warmup", [-1, 1.5])
@pytest.mark.parametrize("name", ALL)
def test_bad_warm_up_is_refused(name: str, warmup: float):
    with pytest.raises(InvalidFields, match="warmup_steps"):
        ALL[name](warmup)
