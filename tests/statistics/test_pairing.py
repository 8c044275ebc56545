"""What pairing by seed gained."""

from __future__ import annotations

import numpy as np
import pytest

from mlm_lab.statistics.pairing import Pairing, pairing


def arm(values) -> dict[int, float]:
    return dict(enumerate(map(float, values)))


def test_the_gain_is_the_variance_of_the_unpaired_difference_over_the_paired_ones():
    rng = np.random.default_rng(0)
    seeds = rng.normal(0, 10, 6)
    ours, theirs = seeds + rng.normal(size=6), seeds + rng.normal(size=6)
    found = pairing(arm(ours), arm(theirs))
    assert found.correlation == pytest.approx(np.corrcoef(ours, theirs)[0, 1])
    assert found.gain == pytest.approx((ours.var(ddof=1) + theirs.var(ddof=1)) / (ours - theirs).var(ddof=1))
    assert found.gain > 2


def test_opposed_seeds_lose():
    assert pairing(arm([1, 2, 3]), arm([3, 2, 1])) == Pairing(correlation=pytest.approx(-1), gain=pytest.approx(0.5))


def test_only_common_seeds_count():
    assert pairing({0: 1.0, 1: 2.0, 2: 4.0, 9: 50.0}, arm([1, 3, 3])) == pairing(arm([1, 2, 4]), arm([1, 3, 3]))


def test_what_cannot_be_told():
    assert pairing(arm([1, 2]), arm([2, 3])) == Pairing(correlation=None, gain=None)  # two seeds
    assert pairing(arm([1, 1, 1]), arm([2, 3, 4])) == Pairing(correlation=None, gain=pytest.approx(1))
    assert pairing(arm([1, 2, 3]), arm([2, 3, 4])) == Pairing(correlation=pytest.approx(1), gain=None)  # no spread left
    assert pairing(arm([0.1, 0.2, 0.7]), arm([0.1 + 0.2, 0.2 + 0.2, 0.7 + 0.2])).gain is None  # none but that of floats
