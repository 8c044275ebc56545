"""What was run and measured: the settings that all runs share, and what the metrics are in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm_lab.corruption.recipe import STANDARD_PROBE
from mlm_lab.report.document import Paragraph
from mlm_lab.report.setting import describe, what_was_run
from tests.report import synthetic
from tests.report.test_placing import read


@pytest.mark.parametrize(
    ("metric", "meaning"),
    [
        (
            "probe/mlm_15_loss",
            "held-out text, 15 % of the tokens selected and 80/10/10 (mask/random/keep) of them in every arm: cross-entropy",
        ),
        (
            "probe/mlm_40_generator_masked_accuracy",
            "held-out text, 40 % of the tokens selected and 80/10/10 (mask/random/keep) of them in every arm, filled by the generator: "
            "share of right predictions at [MASK]",
        ),
        ("val/loss", "held-out text, under the run's own recipe: cross-entropy"),
        ("val/mlm_kept_loss", "held-out text, under the run's own recipe: cross-entropy where the token was kept"),
        ("pos_probe/accuracy", "parts of speech by a linear probe on the frozen encoder, CoNLL-2003 (accuracy)"),
        ("conll2003/test/f1", "CoNLL-2003 English, fine-tuned (entity F1)"),
        ("mine/f1", ""),
    ],
)
def test_what_a_metric_is(metric: str, meaning: str) -> None:
    assert describe(metric) == meaning


def test_the_mix_that_is_named_is_that_of_the_probes() -> None:
    """The report reads files alone and so cannot ask the recipe."""
    assert "80/10/10" in describe("probe/mlm_15_loss") and STANDARD_PROBE["replace_mix"] == (0.8, 0.1, 0.1)


def test_what_all_runs_share_and_no_key_in_which_they_differ(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    study = read(tmp_path)
    shared = next(block.text for block in what_was_run(study.tables, study.declaration) if isinstance(block, Paragraph))
    assert "`objective=MLM`, `objective.replace_mix=[0.8, 0.1, 0.1]`" in shared and "`precision=bf16-mixed`" in shared
    assert "mask_ratio" not in shared and "budget.steps" not in shared, "it differs; it is null"
