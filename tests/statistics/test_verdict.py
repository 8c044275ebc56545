"""The exact words."""

from __future__ import annotations

import pytest

from mlm_lab.statistics.verdict import verdict

PLAIN = {
    "difference": 0.3,
    "p": 0.5,
    "equivalence_p": None,
    "margin": None,
    "higher_is_better": True,
    "alpha": 0.05,
    "n": 3,
    "detectable": 0.0523,
}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"p": 0.01}, "better"),
        ({"p": 0.01, "difference": -0.3}, "worse"),
        ({"p": 0.01, "higher_is_better": False}, "worse"),
        ({"p": 0.01, "difference": -0.3, "higher_is_better": False}, "better"),
        ({}, "not resolved: 3 seeds could have shown a difference of 0.052"),
        ({"p": 0.05, "detectable": 12.3}, "not resolved: 3 seeds could have shown a difference of 12"),
        ({"equivalence_p": 0.01, "margin": 0.4}, "equivalent within 0.4"),
        ({"equivalence_p": 0.01, "margin": 0.4, "p": 0.01}, "equivalent within 0.4"),
        ({"equivalence_p": 0.2, "margin": 0.4, "p": 0.01}, "better"),
        ({"p": 0.01, "barred": {"better"}, "because": "1 of 3 runs collapsed"}, "not compared: 1 of 3 runs collapsed"),
        ({"p": 0.01, "difference": -0.3, "barred": {"better"}, "because": "x"}, "worse"),
    ],
)
def test_words(changed: dict, words: str):
    assert verdict(**{**PLAIN, **changed}) == words
