"""The points of a grid, what their arms are called, and the config that they compose to."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm_lab.config import compose
from mlm_lab.sweep.points import find_arm, label, spell
from tests.sweep.sweeps_for_tests import sweep

WORD = ("  seed:", "  objective.unit: {values: [token, word]}\n  seed:")


def test_every_combination_is_a_point_and_the_last_parameter_changes_fastest(tmp_path: Path) -> None:
    points = sweep(tmp_path).points()
    assert [(point.arm, point.seed) for point in points] == [(f"mask_ratio={r}", s) for r in (0.15, 0.4) for s in (0, 1, 2)]
    assert points[4].overrides == ("+experiment=tiny", "study=good", "trainer.precision=32-true", "objective.mask_ratio=0.4", "seed=1")


def test_a_point_composes_as_its_overrides_do_and_reads_the_files_once(tmp_path: Path) -> None:
    points = sweep(tmp_path).points()
    for point in points:
        assert point.config == compose(point.overrides)
    assert len(points[0].loaded) == 2, "the options, with the experiment and without"
    assert len({point.config_hash for point in points}) == 6 and points[0].folder.run_id == points[0].config_hash[:12]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"objective.mask_ratio": 0.4, "seed": 1}, "mask_ratio=0.4"),
        ({"objective": "rtd", "seed": 1}, "objective=rtd"),
        ({"arm": "bert_0_20_80"}, "bert_0_20_80"),
        ({"objective.mask_ratio": 0.4, "objective.unit": "word"}, "mask_ratio=0.4 unit=word"),
        ({"model.size": 1, "data.size": 2}, "model.size=1 data.size=2"),
        ({"objective.replace_mix": [0.8, 0.1, 0.1]}, "replace_mix=[0.8,0.1,0.1]"),
        ({"seed": 3}, "all"),
    ],
)
def test_an_arm_is_called_by_its_values_without_the_seed(values: dict, expected: str) -> None:
    assert label(values) == expected


def test_a_value_has_one_spelling() -> None:
    assert [spell(value) for value in (0.40, 1.0, [1.0, 0, 0.5], True, "x", 2e-3, 1e-5)] == [
        "0.4",
        "1",
        "[1,0,0.5]",
        "true",
        "x",
        "0.002",
        "1e-05",
    ]


def test_a_study_names_its_arms_by_value_label_name_or_mapping(tmp_path: Path) -> None:
    one = sweep(tmp_path)
    assert find_arm(one, 0.4) == find_arm(one, "mask_ratio=0.4") == find_arm(one, {"objective.mask_ratio": 0.40}) == "mask_ratio=0.4"
    assert find_arm(one, 0.5) is None
    two = sweep(tmp_path, WORD)
    assert find_arm(two, {"objective.unit": "word", "objective.mask_ratio": 0.15}) == "mask_ratio=0.15 unit=word"
    assert find_arm(two, 0.15) is None, "the value of one of two factors names no arm"
