"""What stands for a sequence: each pooling by hand, and from the encoder of every objective."""

from __future__ import annotations

import pytest
import torch
from lightning.fabric import Fabric

from mlm_lab.evaluation.finetune import pool
from mlm_lab.evaluation.settings import POOLINGS
from mlm_lab.evaluation.task import TaskData
from mlm_lab.models.transformer import TransformerEncoder
from mlm_lab.types import Vocabulary
from tests.evaluation.test_finetune import run, sentiment
from tests.training.test_costs import OBJECTIVES
from tests.training.tiny_run import make_config


def test_by_hand():
    hidden = torch.arange(24, dtype=torch.float32).view(2, 4, 3)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    assert torch.equal(pool(hidden, mask, "cls")[:, 0], hidden[:, 0])
    assert torch.equal(pool(hidden, mask, "last")[:, 0], torch.stack([hidden[0, 1], hidden[1, 3]]))
    assert torch.equal(pool(hidden, mask, "mean")[:, 0], torch.stack([hidden[0, :2].mean(0), hidden[1].mean(0)]))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_changes_nothing(pooling):
    hidden, mask = torch.randn(1, 5, 3), torch.tensor([[1, 1, 1, 0, 0]])
    assert torch.allclose(pool(hidden, mask, pooling), pool(hidden[:, :3], mask[:, :3], pooling))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_encoder_of_each_objective_is_fine_tuned(objective: str, tokenizer, vocabulary: Vocabulary):
    """Every batch passes through it: rtd's discriminator and not its generator, T5's encoder and not its decoder, the causal encoder, which
    is read at its last token."""
    config = make_config(f"objective={objective}")
    encoder = config.objective.build(config.model, vocabulary).encoder
    assert encoder.config.hidden_size == config.model.hidden_size and type(encoder) is TransformerEncoder
    shapes = []
    encoder.register_forward_hook(lambda module, given, output: shapes.append((len(output), module.training)))  # a copy has it too
    data = TaskData("classification", ("bad", "good"), sentiment(32, 0), sentiment(8, 1))
    fabric = Fabric(accelerator="cpu", devices=1, precision="32-true")
    pooling = "last" if encoder.causal else "mean"
    assert len(run(encoder, data, tokenizer, vocabulary, fabric, pooling=pooling, steps=3)) == 8
    assert sum(rows for rows, training in shapes if training) == 3 * 16 and sum(rows for rows, training in shapes if not training) == 8
