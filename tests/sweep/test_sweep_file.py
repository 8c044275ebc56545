"""What a sweep's points have in common: the words of its command, and those behind the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm_lab.errors import UserError
from tests.sweep.sweeps_for_tests import sweep


def test_a_study_that_the_command_does_not_name_is_the_files(tmp_path: Path) -> None:
    assert "study=good" in sweep(tmp_path, (" study=good,", "")).overrides


def test_words_behind_the_file_change_every_point_and_replace_values(tmp_path: Path) -> None:
    found = sweep(tmp_path).with_words(["seed=5,6", "objective.mask_ratio=0.3", "budget.steps=2", "trainer.precision=bf16-mixed"])
    assert found.parameters == {"objective.mask_ratio": (0.3,), "seed": (5, 6)}
    assert found.overrides == ("+experiment=tiny", "study=good", "budget.steps=2", "trainer.precision=bf16-mixed")
    assert sweep(tmp_path).with_words(["+experiment=wwm"]).overrides[0] == "+experiment=tiny", "experiments are added, not replaced"
    with_budget = sweep(tmp_path, ("study=good", "study=good, budget.tokens=1e6"))
    assert "budget.tokens=1e6" not in with_budget.with_words(["budget.steps=2"]).overrides, "there is one budget"
    with pytest.raises(UserError, match="several values of what is no parameter"):
        sweep(tmp_path).with_words(["batch_size=8,16"])
