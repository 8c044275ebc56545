"""The same weights give the same losses as Transformers' ELECTRA: its discriminator with its head, and its generator with its own."""

from __future__ import annotations

import pytest
import torch

from mlm_lab.objectives.rtd_module import ReplacedTokenDetection
from mlm_lab.types import IGNORE_INDEX
from tests.models.conftest import encoder_config, make_vocabulary
from tests.models.test_transformers_equality import NO_DROPOUT, bert_names, randomise, rename
from tests.objectives.test_rtd import rtd
from tests.objectives.test_rtd_module import real_batch, seen_by_discriminator

transformers = pytest.importorskip("transformers")

COMMON = {"vocab_size": 200, "num_hidden_layers": 2, "max_position_embeddings": 64, "type_vocab_size": 2, "pad_token_id": 0, **NO_DROPOUT}
DISCRIMINATOR = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
GENERATOR = {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 16}
NAMES = bert_names("electra.") | {"embedding_projection": "electra.embeddings_project"}


@pytest.fixture(params=[32, 24], ids=["embeddings as wide as the discriminator", "embeddings narrower than both need"])
def both(request: pytest.FixtureRequest) -> tuple:
    """Theirs (discriminator, generator with the discriminator's embeddings), ours with their weights."""
    width = {"embedding_size": request.param}
    discriminator = randomise(transformers.ElectraForPreTraining(transformers.ElectraConfig(**COMMON, **DISCRIMINATOR, **width)))
    generator = randomise(transformers.ElectraForMaskedLM(transformers.ElectraConfig(**COMMON, **GENERATOR, **width)))
    generator.electra.embeddings.load_state_dict(discriminator.electra.embeddings.state_dict())
    generator.tie_weights()
    ours = rtd().build(encoder_config(embedding_size=request.param, initializer_range=0.2), make_vocabulary(200, 200))
    load(ours, discriminator.state_dict(), generator.state_dict())
    return discriminator, generator, ours.eval()


def load(ours: ReplacedTokenDetection, discriminator: dict[str, torch.Tensor], generator: dict[str, torch.Tensor]) -> None:
    prediction = "discriminator_predictions."
    ours.encoder.load_state_dict(rename(discriminator, NAMES), strict=True)
    ours.head.load_state_dict(rename(discriminator, {"dense": prediction + "dense", "out": prediction + "dense_prediction"}), strict=True)
    ours.generator.load_state_dict(rename(generator, NAMES), strict=True)
    head = rename(generator, {"dense": "generator_predictions.dense", "norm": "generator_predictions.LayerNorm"})
    ours.generator_head.load_state_dict(head | {"bias": generator["generator_lm_head.bias"]}, strict=True)


def test_both_losses_equal_electra(both: tuple):
    discriminator, generator, ours = both
    batch = real_batch(rows=8, cross_document_attention=True)  # theirs has no packed documents
    output, counts = ours(batch), ours.target_counts(batch)
    inputs = {"attention_mask": batch["attention_mask"], "position_ids": batch["position_ids"]}
    used = batch["labels"] != IGNORE_INDEX
    labels = torch.full_like(batch["input_ids"], IGNORE_INDEX)
    labels[torch.arange(8)[:, None].expand(used.shape)[used], batch["label_positions"][used]] = batch["labels"][used]
    expected = generator(input_ids=batch["input_ids"], labels=labels, **inputs).loss
    torch.testing.assert_close(output.losses["generator"] / counts["generator"], expected, rtol=1e-5, atol=1e-5)
    seen = seen_by_discriminator(ours, batch)
    replaced = (labels != IGNORE_INDEX) & (seen != labels)
    assert replaced.any() and not batch["attention_mask"].all()
    expected = discriminator(input_ids=seen, labels=replaced.long(), **inputs).loss
    torch.testing.assert_close(output.losses["discriminator"] / counts["discriminator"], expected, rtol=1e-5, atol=1e-5)


def test_gradients_equal_electra(both: tuple):
    """Of the whole loss, generator + 50 x discriminator; the shared embeddings have both models' added up."""
    discriminator, generator, ours = both
    batch = real_batch(rows=8, cross_document_attention=True)
    counts = ours.target_counts(batch)
    output = ours(batch)
    sum(ours.loss_weights[name] * loss / counts[name] for name, loss in output.losses.items()).backward()
    used = batch["labels"] != IGNORE_INDEX
    labels = torch.full_like(batch["input_ids"], IGNORE_INDEX)
    labels[torch.arange(8)[:, None].expand(used.shape)[used], batch["label_positions"][used]] = batch["labels"][used]
    inputs = {"attention_mask": batch["attention_mask"], "position_ids": batch["position_ids"]}
    seen = seen_by_discriminator(ours, batch)
    replaced = (labels != IGNORE_INDEX) & (seen != labels)
    generator(input_ids=batch["input_ids"], labels=labels, **inputs).loss.backward()
    (50 * discriminator(input_ids=seen, labels=replaced.long(), **inputs).loss).backward()
    mine = ours.encoder.embeddings.tokens.weight.grad[1:]  # theirs gives the padding token no gradient as an input
    words = [model.electra.embeddings.word_embeddings.weight.grad[1:] for model in (discriminator, generator)]
    torch.testing.assert_close(mine, words[0] + words[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.head.out.weight.grad, discriminator.discriminator_predictions.dense_prediction.weight.grad)
    projection = generator.electra.embeddings_project.weight.grad
    torch.testing.assert_close(ours.generator.embedding_projection.weight.grad, projection, rtol=1e-4, atol=1e-5)
