"""Killed at any moment, the same command finishes the run: bitwise the same weights, metrics, evaluation and store as if nothing had
been."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

import pytest

from tests.survival.killed import Ended, command
from tests.survival.small_run import outcome, words, write_inputs
from tests.training.test_costs import OBJECTIVES

PHASES = {
    "tokenizer": r"cache/tokenizers",
    "store": r"cache/stores",
    "training": r"metrics\.csv",
    "checkpoint": r"/checkpoints",
    "weights": r"weights\.safetensors|loss\.svg|/tokenizer\.json",
    "summary": r"summary\.json",
    "evaluation": r"/evaluation/|/floors",
}
TWELVE = [
    "tokenizer",
    "store",
    "store",
    "training",
    "training",
    "checkpoint",
    "checkpoint",
    "writing",
    "weights",
    "summary",
    *["evaluation"] * 2,
]
FEW = ["store", "writing", "evaluation"]
"""Of each other objective."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """objective -> (folder of the inputs, how a run of it ended, its outcome)."""
    inputs = tmp_path_factory.mktemp("inputs")
    write_inputs(inputs)

    @cache
    def go(objective: str) -> tuple[Path, Ended, dict]:
        place = tmp_path_factory.mktemp(f"whole_{objective}")
        ended = command(place, words(inputs, objective))
        assert ended.code == 0, ended.said
        return inputs, ended, outcome(place)

    return go


def moment(phase: str, number: int, ended: Ended) -> dict[str, int]:
    """A seeded moment of a phase, for `command`."""
    drawn = random.Random(f"{phase} {number}")
    if phase == "writing":
        return {"in_write": drawn.randrange(20, 400)}
    return {"die_at": drawn.choice([place for place, line in enumerate(ended.moments) if re.search(PHASES[phase], line)])}


def survive(place: Path, undisturbed, objective: str, phase: str, number: int) -> None:
    inputs, whole, expected = undisturbed(objective)
    run = words(inputs, objective)
    killed = command(place, run, **moment(phase, number, whole))
    assert killed.code == -9, killed.said
    finished = command(place, run)
    assert finished.code == 0, finished.said
    found = outcome(place)
    assert found.keys() == expected.keys()
    for name, content in expected.items():
        assert found[name] == content, name
    assert not list(place.rglob("*.unfinished")) and not list(place.rglob("*.tmp")), "what was half written is gone"


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["store", "writing", "summary"])
def test_a_few_moments(undisturbed, tmp_path, phase):
    survive(tmp_path, undisturbed, "mlm", phase, 0)


@pytest.mark.slow
def test_every_moment_from_the_weights_to_the_end_of_pretraining(undisturbed, tmp_path):
    """What is made after the weights is missing for good where the run counts as over before it is there."""
    inputs, whole, expected = undisturbed("mlm")
    first = next(number for number, line in enumerate(whole.moments) if "weights.safetensors" in line)
    last = next(number for number, line in enumerate(whole.moments) if number > first and "/evaluation/" in line)
    for number in range(first, last):
        place = tmp_path / str(number)
        assert command(place, words(inputs), die_at=number).code == -9
        assert command(place, words(inputs)).code == 0
        assert outcome(place) == expected, whole.moments[number]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("number", "phase"), list(enumerate(TWELVE)))
def test_twelve_moments_of_mlm(undisturbed, tmp_path, phase, number):
    survive(tmp_path, undisturbed, "mlm", phase, number)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("number", "phase"), list(enumerate(FEW, start=100)))
@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "mlm"])
def test_three_moments_of_each_other_objective(undisturbed, tmp_path, objective, phase, number):
    survive(tmp_path, undisturbed, objective, phase, number)


@pytest.mark.exhaustive
def test_killed_again_and_again(undisturbed, tmp_path):
    """Ten times in one run, anywhere."""
    inputs, _, expected = undisturbed("mlm")
    drawn, kills = random.Random(5), 0
    for _ in range(10):
        ended = command(tmp_path, words(inputs), die_at=drawn.randrange(10, 45))
        kills += ended.code == -9
    assert kills >= 8
    assert command(tmp_path, words(inputs)).code == 0
    assert outcome(tmp_path) == expected
