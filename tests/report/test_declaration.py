"""What a study declares, and what no study may declare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlm_lab.errors import UserError
from mlm_lab.report.declaration import Declaration, of_sweep, of_words
from mlm_lab.report.gather import gather
from mlm_lab.sweep.reading import read
from tests.report import synthetic

WORDS = {"factor": "objective.mask_ratio", "metric": "probe/mlm_15_loss"}


def of_file(root: Path, **changes: object) -> Declaration:
    """The declaration of the made-up sweep file, with fields of it changed after it was read."""
    sweep = read(synthetic.write_sweep(root))
    primary = {key: changes.pop(key) for key in ("baseline", "contrast") if key in changes}
    study = replace(sweep.study, primary=replace(sweep.study.primary, **primary))
    return of_sweep("ratios", replace(sweep, study=study, **changes), [], [])


@pytest.mark.parametrize("given", [{"baseline": "0.15", "contrast": "0.15"}, {"contrast": "mask_ratio=0.15"}, {"contrast": "0.150"}])
def test_an_arm_is_not_compared_with_itself(tmp_path: Path, given: dict[str, str]) -> None:
    synthetic.write_study(tmp_path, seeds=(10,))
    told = r"the contrast is the baseline itself(.|\n)*contrast: mask_ratio=0.15\n  allowed: mask_ratio=0.4, mask_ratio=0.8"
    with pytest.raises(UserError, match=told):
        of_words("ratios", {**WORDS, **given}, gather(tmp_path / "runs", "ratios").rows)
    with pytest.raises(UserError, match=told):
        of_file(tmp_path, **given)


@pytest.mark.parametrize("metric", ["probe/mlm_15_loss", "val/mlm_perplexity"])
def test_no_loss_is_maximized(tmp_path: Path, metric: str) -> None:
    assert not of_file(tmp_path, metric=metric).is_better_higher(metric)
    text = synthetic.SWEEP.replace("probe/mlm_15_loss", metric)
    with pytest.raises(UserError, match=f"{metric}: goal maximize, but of this metric less is better"):
        read(synthetic.write_sweep(tmp_path, text.replace("goal: minimize", "goal: maximize")))
    assert of_file(tmp_path, metric="pydocs_entities/f1", goal="maximize").is_better_higher("pydocs_entities/f1")


@pytest.mark.parametrize("metric", ["val/loss", "val/mlm_perplexity"])
def test_of_a_loss_less_is_better_whatever_the_goal_of_another_metric(tmp_path: Path, metric: str) -> None:
    assert not of_file(tmp_path, metric="pydocs_entities/f1", goal="maximize").is_better_higher(metric)
