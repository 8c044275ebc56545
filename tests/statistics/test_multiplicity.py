"""Holm's p values."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm_lab.statistics.multiplicity import holm

P_VALUES = st.lists(st.floats(0, 1), max_size=12)


@pytest.fixture(scope="module")
def multitest() -> ModuleType:
    return pytest.importorskip("statsmodels.stats.multitest")


@settings(deadline=None, max_examples=25)
@given(p_values=P_VALUES.filter(bool))
def test_as_statsmodels_has_it(multitest: ModuleType, p_values: list[float]):
    assert holm(p_values) == pytest.approx(list(multitest.multipletests(p_values, method="holm")[1]))


def test_by_hand():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])  # .01 x 3, .03 x 2, then .04 x 1 is not below its forerunner
    assert holm([]) == []


@settings(deadline=None)
@given(P_VALUES)
def test_between_the_p_value_and_bonferronis_in_the_same_order(p_values: list[float]):
    adjusted = holm(p_values)
    assert all(p <= a <= min(1, len(p_values) * p) + 1e-12 for p, a in zip(p_values, adjusted, strict=True))
    ranked = [a for _, a in sorted(zip(p_values, adjusted, strict=True))]
    assert ranked == sorted(ranked)
