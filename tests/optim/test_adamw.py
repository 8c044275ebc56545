"""Decay groups and the optimiser's settings."""

from __future__ import annotations

import pytest
import torch

from mlm_lab.errors import InvalidFields
from mlm_lab.objectives.mlm_module import MaskedLM
from mlm_lab.optim.adamw import AdamW
from tests.models.conftest import encoder_config, make_vocabulary, recipe  # noqa: F401

SETTINGS = {"peak_lr": 1e-3, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.1, "gradient_clip": 1.0}


def test_trap_35_biases_norms_and_the_relative_bias_have_no_decay(recipe: str):  # noqa: F811
    module = MaskedLM(encoder_config(recipe), make_vocabulary())
    optimizer = AdamW(**SETTINGS).build(module)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    decay = {names[id(p)]: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert sorted(decay) == sorted(names.values()), "each parameter once"
    for name, value in decay.items():
        matrix = name.endswith("weight") and "norm" not in name and "relative_bias" not in name
        assert value == (0.1 if matrix else 0.0), name


def test_frozen_parameters_are_left_out():
    module = MaskedLM(encoder_config(), make_vocabulary())
    module.encoder.requires_grad_(False)
    count = sum(len(group["params"]) for group in AdamW(**SETTINGS).build(module).param_groups)
    assert count == len(list(module.head.parameters()))


def test_settings_reach_the_optimiser():
    optimizer = AdamW(**SETTINGS).build(torch.nn.Linear(4, 4))
    assert (optimizer.defaults["lr"], optimizer.defaults["betas"], optimizer.defaults["eps"]) == (1e-3, (0.9, 0.98), 1e-6)
    assert optimizer.defaults["fused"]


def test_bad_settings_are_named():
    with pytest.raises(InvalidFields) as caught:
        AdamW(peak_lr=0.0, betas=(0.9, 1.0), eps=1e-6, weight_decay=-1.0, gradient_clip=0.0)
    assert [problem.field for problem in caught.value.problems] == ["peak_lr", "betas", "weight_decay", "gradient_clip"]
