"""Several processes on the CPU (gloo, under torchrun) are the same run as one, for every option of conf/objective: the same losses to 1e-5
over 30 steps in float32, the same masked rows, each held-out target counted once. With whole models (ddp) and in parts (fsdp)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.strategies.ranks import rows_seen, run
from tests.training.test_costs import OBJECTIVES
from tests.training.test_training import rows_of

WORDS = ["validation.sequences=17", "checkpoint.every_steps=15"]
"""17 held-out rows: of the last batch there is one, so that some ranks have none."""
COUNTED = ("accuracy", "auc", "precision", "recall", "replaced_share")
"""A logit that differs in its last digit may turn one answer over."""
RUNS = {
    "one": (1, []),
    "ddp 2": (2, []),
    "ddp 3": (3, ["trainer.micro_batch_size=2"]),
    "fsdp 2": (2, ["trainer.strategy=fsdp"]),
    "fsdp 3": (3, ["trainer.strategy=fsdp"]),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name of a run -> its folder, with a folder for each objective."""

    @cache
    def go(name: str) -> Path:
        folder, (ranks, words) = tmp_path_factory.mktemp(name.replace(" ", "_")), RUNS[name]
        run(ranks, folder, OBJECTIVES, *WORDS, *words)
        return folder

    return go


def check(one: Path, several: Path) -> None:
    single, many = rows_of(one), rows_of(several)
    assert len(single) == len(many) == 30
    for a, b in zip(single, many, strict=True):
        assert b.keys() == a.keys()
        assert {name: b[name] for name in a if not name.endswith(COUNTED)} == pytest.approx(
            {name: value for name, value in a.items() if not name.endswith(COUNTED)}, rel=1e-5, abs=1e-5
        )
        assert all(abs(b[name] - a[name]) < 0.01 for name in a if name.endswith(COUNTED))
    assert rows_seen(several) == rows_seen(one)
    counted = [json.loads((folder / "held_out.json").read_text()) for folder in (one, several)]
    for recipe, metrics in counted[0].items():
        for name, (_, count) in metrics.items():
            assert counted[1][recipe][name][1] == count, (recipe, name)
    weights = [load_file(folder / "weights.safetensors") for folder in (one, several)]
    assert set(weights[0]) == set(weights[1]), "tied matrices are written once"
    for name, tensor in weights[0].items():
        assert torch.allclose(weights[1][name], tensor, atol=1e-4), name


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_two_with_whole_models(runs, objective):
    """traps 23, 30. A parameter without a gradient would stop the second step."""
    check(runs("one") / objective, runs("ddp 2") / objective)


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_two_with_parts_of_a_model(runs, objective):
    """traps 28: tied matrices stay tied."""
    check(runs("one") / objective, runs("fsdp 2") / objective)


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_three(runs, objective, strategy):
    check(runs("one") / objective, runs(f"{strategy} 3") / objective)
