"""A run that is stopped and goes on with another number of processes is the same stream of examples: none lost, none twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.strategies.ranks import rows_seen, run
from tests.training.test_training import rows_of

FSDP = "trainer.strategy=fsdp"


def go_through(folder: Path, starts: list[tuple[int, list[str]]]) -> list[str]:
    """Start after start, each with so many processes, in one folder."""
    return [run(ranks, folder, ["mlm"], "batch_size=9", *words) for ranks, words in starts]


def check(folder: Path, starts: list[tuple[int, list[str]]]) -> list[str]:
    run(1, folder / "whole", ["mlm"], "batch_size=9")
    said = go_through(folder / "parts", starts)
    whole, parts = folder / "whole/mlm", folder / "parts/mlm"
    assert rows_seen(parts) == rows_seen(whole) and rows_seen(parts).total() == 9 * 30
    for a, b in zip(rows_of(whole), rows_of(parts), strict=True):
        assert b == pytest.approx(a, rel=1e-5, abs=1e-5)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], [FSDP]], ids=["ddp", "fsdp"])
def test_two_and_then_one(tmp_path, words):
    said = check(tmp_path, [(2, ["stop=11", *words]), (1, [])])
    assert re.search(r"continuing at step 1[23] of 30 \((108|117) examples seen\)", said[1]), "several ranks agree a step later"
    assert "1 processes instead of 2: batch_size stays 9" in said[1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategies", [["ddp"] * 3, ["fsdp"] * 3, ["ddp", "fsdp", "ddp"]], ids=" ".join)
def test_two_three_two(tmp_path, strategies):
    words = [[f"trainer.strategy={name}"] for name in strategies]
    said = check(tmp_path, [(2, ["stop=7", *words[0]]), (3, ["stop=19", *words[1]]), (2, words[2])])
    assert "3 processes instead of 2" in said[1] and "2 processes instead of 3" in said[2]
