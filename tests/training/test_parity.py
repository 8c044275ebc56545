"""A run of ours, with its own batches, masks, schedule, clipping and log, has the loss curve of Transformers' BertForMaskedLM from the same
weights on the same batches."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from mlm_lab.interchange.format import Source
from mlm_lab.interchange.formats.bert import PREDICTIONS, encoder_names, sizes
from tests.training.tiny_run import VOCABULARY, make_config, make_course, train

transformers = pytest.importorskip("transformers")

STEPS = 50
BERT_LIKE = ("model.relative_bias=none", "model.positions=learned", "model.max_positions=32", "objective.cross_document_attention=true")


def theirs_from(ours: torch.nn.Module) -> torch.nn.Module:
    """BertForMaskedLM with our weights."""
    config = sizes(Source(ours, VOCABULARY, 32)) | {"vocab_size": VOCABULARY.padded_size, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
    model = transformers.BertForMaskedLM(transformers.BertConfig(**config, attn_implementation="eager"))
    names = {f"encoder.{our}": their for our, their in encoder_names("bert.").items()}
    names |= {f"head.{our}": their for our, their in PREDICTIONS.items()}
    state, given = model.state_dict(), ours.state_dict()
    for our, their in names.items():
        for layer in range(2) if "{}" in our else [0]:
            for kind in ("weight", "bias"):
                if (key := f"{our.format(layer)}.{kind}") in given:
                    targets = [f"{name.format(layer)}.{kind}" for name in their.split(",")]
                    for target, part in zip(targets, given[key].chunk(len(targets)), strict=True):
                        state[target].copy_(part)
    state["cls.predictions.bias"].copy_(given["head.bias"])
    return model.train()


def test_fifty_steps_have_the_curve_of_transformers(tmp_path: Path) -> None:
    config = make_config(*BERT_LIKE, "optim.peak_lr=5e-3", "trainer.log_every_steps=1", "validation.every_steps=50", steps=STEPS)
    course = make_course(config)
    model, batches, factor = theirs_from(course.module), course.dataset(STEPS), config.schedule.build(STEPS)
    groups = [{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": config.optim.weight_decay}]
    groups += [{"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=config.optim.betas, eps=config.optim.eps)
    padding = torch.full((VOCABULARY.padded_size - VOCABULARY.size,), -torch.inf)
    expected = []
    for step in range(STEPS):
        batch = {name: torch.from_numpy(array) for name, array in batches[step][0].items()}
        used = batch["labels"] != -100
        rows = torch.arange(len(used))[:, None].expand_as(used)
        dense = torch.full_like(batch["input_ids"], -100)
        dense[rows[used], batch["label_positions"][used]] = batch["labels"][used]
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.clone()
        logits[..., VOCABULARY.size :] = padding  # rows that ours never predicts
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), dense.flatten())
        for group in optimizer.param_groups:
            group["lr"] = config.optim.peak_lr * factor(step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.optim.gradient_clip)
        optimizer.step()
        expected.append(loss.item())
    train(config, tmp_path)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        curve = [float(row["train/loss"]) for row in csv.DictReader(file) if row.get("train/loss")]
    assert len(curve) == STEPS and max(abs(a - b) for a, b in zip(curve, expected, strict=True)) < 1e-4, (curve, expected)
    assert expected[0] - expected[-1] > 0.1, "the steps must move the loss, or the comparison says nothing"
