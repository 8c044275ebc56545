from __future__ import annotations

import pytest

from mlm_lab.errors import InvalidFields
from mlm_lab.training.budget import Budget, StepFacts


def budget(**given: float) -> Budget:
    return Budget(**{name: given.get(name) for name in ("steps", "tokens", "flops", "hours")})


def never() -> float:
    raise AssertionError("a step is timed for a budget in hours alone")


@pytest.mark.parametrize(
    ("given", "steps"),
    [({"steps": 7}, 7), ({"tokens": 10_000}, 4), ({"tokens": 1}, 1), ({"flops": 9e12}, 9)],
)
def test_steps_of_a_budget(given, steps):
    assert budget(**given).steps_for(StepFacts(tokens=2500.0, flops=1e12, seconds=never)) == steps


def test_hours_become_steps_by_timing():
    assert budget(hours=2.0).steps_for(StepFacts(tokens=1, flops=1, seconds=lambda: 0.5)) == 14_400


@pytest.mark.parametrize("given", [{}, {"steps": 5, "tokens": 5}, {"steps": 0}, {"hours": -1.0}])
def test_exactly_one_above_zero(given):
    with pytest.raises(InvalidFields):
        budget(**given)
