"""A run as a whole: it learns, it writes down what happened, and it is the same run every time."""

from __future__ import annotations

import csv
import math

import pytest


def rows_of(folder):
    """metrics.csv as one dict of numbers a row, without timings."""
    timings = ("train/tokens_per_second", "train/flops_per_second", "train/ceiling_share")
    with (folder / "metrics.csv").open(newline="") as file:
        return [{k: float(v) for k, v in row.items() if v and k not in timings} for row in csv.DictReader(file)]


def test_a_short_run_learns_and_records(make_config, train, tmp_path):
    run = train(make_config("optim.peak_lr=1e-2", "trainer.log_every_steps=25", "validation.every_steps=50", steps=150), tmp_path)
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == [25, 50, 75, 100, 125, 150]
    assert rows[-1]["train/loss"] < rows[0]["train/loss"] - 1
    assert rows[-1]["probe/mlm_15_loss"] < run.recorder.baseline["unigram_loss"] - 1
    assert run.recorder.plateau_left_step in (50, 100)
    assert rows[-1]["train/mask_share"] == pytest.approx(0.8, abs=0.08)
    assert rows[-1]["train/learning_rate"] < 1e-3 < rows[1]["train/learning_rate"]
    assert run.recorder.totals["corpus_tokens"] == pytest.approx(150 * run.module.course.tokens_per_step, rel=0.05)


def test_perplexity_is_the_exponential_of_the_summed_loss(make_config, train, tmp_path):
    """traps: perplexity."""
    train(make_config("trainer.log_every_steps=4", steps=8), tmp_path)
    for row in rows_of(tmp_path):
        for part in ("train", "val"):
            if f"{part}/loss" in row:
                assert row[f"{part}/perplexity"] == pytest.approx(math.exp(row[f"{part}/loss"]), rel=1e-9)
