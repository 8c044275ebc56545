"""The modules on sentence pairs: two losses over two counts, no head without a loss, and the numbers of Transformers' BERT and ALBERT."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from mlm_lab.corruption.draws import Draws
from mlm_lab.objectives.mlm_nsp import MLMNSP
from mlm_lab.objectives.sop import SOP
from mlm_lab.types import Flops, ObjectiveModule
from tests.corruption.stores import VOCABULARY, keys_of, many_documents
from tests.models.conftest import encoder_config, recipe  # noqa: F401
from tests.objectives.test_sentence_pairs import KINDS, objective

LENGTH = 48


def make(kind: type, rows: int = 16, model: str = "bert", **changes: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """A module with large weights, and a batch of its objective."""
    described = objective(kind, **changes)
    store = many_documents()
    plan = described.plan(store, LENGTH, Draws(0, "train"))
    batch = described.make_batch(store, plan, keys_of(range(rows)))
    torch.manual_seed(0)
    module = described.build(encoder_config(model, initializer_range=0.2), VOCABULARY)
    return module, {name: torch.from_numpy(array) for name, array in batch.items()}


def gradients(module: torch.nn.Module, output: Any) -> list[torch.Tensor]:
    return list(torch.autograd.grad(sum(output.losses.values()), list(module.parameters())))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mlm_weight", [0.5, 0.0])
def test_satisfies_the_contract(kind: type, mlm_weight: float):
    module, batch = make(kind, mlm_weight=mlm_weight, pair_weight=2.0)
    assert isinstance(module, ObjectiveModule)
    expected = {"mlm": 0.5, kind.pair_loss: 2.0} if mlm_weight else {kind.pair_loss: 2.0}
    output = module(batch)
    assert module.loss_weights == expected and list(output.losses) == list(module.target_counts(batch)) == list(expected)
    assert f"{kind.pair_loss}_accuracy" in output.metrics and hasattr(module, "predict") == (mlm_weight > 0)
    assert not any(value.requires_grad for metric in output.metrics.values() for value in metric)
    assert all(gradient.abs().sum() > 0 for gradient in gradients(module, output)), "no parameter without a use"


@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_loss_of_weight_0_has_no_head_and_leaves_the_masked_token_loss(kind: type):
    with_pairs, batch = make(kind, mlm_weight=0.5)
    without, same = make(kind, mlm_weight=0.5, pair_weight=0.0)
    output = without(same)
    assert without.loss_weights == {"mlm": 0.5} and list(output.losses) == list(without.target_counts(same)) == ["mlm"]
    torch.testing.assert_close(output.losses["mlm"], with_pairs(batch).losses["mlm"])
    assert all(gradient.abs().sum() > 0 for gradient in gradients(without, output)), "no parameter without a use"


def test_order_alone_has_no_vocabulary_projection():
    module, batch = make(SOP, mlm_weight=0.0)
    assert not any("head.bias" in name or "head.norm" in name for name, _ in module.named_parameters())
    assert module.flops(batch).head == 0


@pytest.mark.parametrize("kind", KINDS)
def test_trap_14_each_loss_is_a_sum_over_its_own_targets(kind: type):
    module, batch = make(kind)
    batch[kind.label_name][3] = -100
    output, counts = module(batch), module.target_counts(batch)
    hidden = module.encoder(batch["input_ids"], batch["attention_mask"], batch["position_ids"], batch["token_type_ids"])
    logits = module.pair.head.out(torch.tanh(module.pair.head.dense(hidden[:, 0])))
    expected = F.cross_entropy(logits, batch[kind.label_name], reduction="sum", ignore_index=-100)
    torch.testing.assert_close(output.losses[kind.pair_loss], expected)
    assert counts[kind.pair_loss] == 15 and counts["mlm"] == (batch["labels"] != -100).sum()
    accuracy = output.metrics[f"{kind.pair_loss}_accuracy"]
    assert accuracy.count == 15 and accuracy.sum == (logits.argmax(-1) == batch[kind.label_name]).sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["bert", "modern"])
def test_trap_14_the_pair_loss_starts_at_about_ln_2(kind: type, model: str):
    described, store = objective(kind), many_documents()
    batch = described.make_batch(store, described.plan(store, LENGTH, Draws(0, "train")), keys_of(range(64)))
    torch.manual_seed(0)
    module = described.build(encoder_config(model), VOCABULARY)
    loss = module({name: torch.from_numpy(array) for name, array in batch.items()}).losses[kind.pair_loss] / 64
    assert loss.item() == pytest.approx(0.693, abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_trap_23_micro_batches_sum_to_the_batch(kind: type):
    module, batch = make(kind)
    whole = module(batch)
    parts = [module({name: value[start : start + 5] for name, value in batch.items()}) for start in range(0, 16, 5)]
    for name, loss in whole.losses.items():
        torch.testing.assert_close(sum(part.losses[name] for part in parts), loss, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_masked_token_probe_has_no_pairs(kind: type):
    module, _ = make(kind)
    store, probe = many_documents(), objective(kind).probes()["mlm_15"]
    arrays = probe.make_batch(store, probe.plan(store, LENGTH, Draws(0, "validation")), keys_of(range(8)))
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    output = module(batch)
    assert output.losses[kind.pair_loss] == 0 and module.target_counts(batch)[kind.pair_loss] == 0
    assert output.losses["mlm"] > 0 and f"{kind.pair_loss}_accuracy" not in output.metrics


@pytest.mark.parametrize("mlm_weight", [1.0, 0.0])
def test_flops_in_closed_form(recipe: str, mlm_weight: float):  # noqa: F811
    module, batch = make(SOP, model=recipe, mlm_weight=mlm_weight)
    module.static_shapes = True
    counter = FlopCounterMode(display=False)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), counter:
        module(batch)
    flops = module.flops(batch)
    assert isinstance(flops, Flops) and flops.total == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_static_shapes_compile_without_a_graph_break():
    torch._dynamo.reset()
    module, batch = make(MLMNSP)
    module.static_shapes = True
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(batch).losses["nsp"], module(batch).losses["nsp"], rtol=1e-2, atol=0)


def assert_equals(module: Any, batch: dict[str, torch.Tensor], theirs: torch.nn.Module, their_name: str, their_logits: str) -> None:
    """The sum of the two mean losses, and the logits of both heads at every real position."""
    module.head.is_padding_row.zero_()  # their vocabulary has no padding rows
    dense = torch.full_like(batch["input_ids"], -100).scatter(1, batch["label_positions"], batch["labels"])
    dense[:, 0] = -100  # where unused slots look
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    expected = theirs(**inputs, labels=dense, **{their_name: batch[module.pair.label_name]})
    losses, counts = module(batch).losses, module.target_counts(batch)
    assert counts["mlm"] == (dense != -100).sum() > 50
    torch.testing.assert_close(sum(losses[name] / counts[name] for name in counts), expected.loss, rtol=1e-5, atol=1e-5)
    hidden = module.encoder(**inputs)
    torch.testing.assert_close(module.pair.head(hidden), expected[their_logits], rtol=1e-5, atol=1e-5)
    real = batch["attention_mask"].bool()
    logits = module.head(hidden[real], module.encoder.embedding_weight)
    torch.testing.assert_close(logits, expected.prediction_logits[real], rtol=1e-5, atol=1e-5)


def test_heads_and_losses_equal_berts_for_pretraining():
    transformers = pytest.importorskip("transformers")
    from tests.models.test_transformers_equality import NO_DROPOUT, SIZES, bert_names, load_strictly, randomise, rename

    config = transformers.BertConfig(**SIZES | {"vocab_size": 256}, **NO_DROPOUT, max_position_embeddings=64)
    theirs = randomise(transformers.BertForPreTraining(config))
    module, batch = make(MLMNSP)
    state = theirs.state_dict()
    load_strictly(module.encoder, rename(state, bert_names("bert.")))
    head = rename(state, {"dense": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"})
    load_strictly(module.head, head | {"bias": state["cls.predictions.bias"]})
    load_strictly(module.pair.head, rename(state, {"dense": "bert.pooler.dense", "out": "cls.seq_relationship"}))
    assert_equals(module, batch, theirs, "next_sentence_label", "seq_relationship_logits")


def test_heads_and_losses_equal_alberts_for_pretraining():
    transformers = pytest.importorskip("transformers")
    from tests.models.test_transformers_equality import NO_DROPOUT, SIZES, load_strictly, randomise, rename

    sizes = SIZES | {"vocab_size": 256, "embedding_size": 16, "max_position_embeddings": 64}
    config = transformers.AlbertConfig(**sizes, **NO_DROPOUT, hidden_act="gelu", classifier_dropout_prob=0.0)
    theirs = randomise(transformers.AlbertForPreTraining(config))
    module, batch = make(SOP, model="albert")
    state, layer = theirs.state_dict(), "albert.encoder.albert_layer_groups.0.albert_layers.0."
    names = {
        "embeddings.tokens": "albert.embeddings.word_embeddings",
        "embeddings.positions": "albert.embeddings.position_embeddings",
        "embeddings.types": "albert.embeddings.token_type_embeddings",
        "embeddings.norm": "albert.embeddings.LayerNorm",
        "embedding_projection": "albert.encoder.embedding_hidden_mapping_in",
        "layers.0.attention.qkv": ",".join(layer + f"attention.{part}" for part in ("query", "key", "value")),
        "layers.0.attention.out": layer + "attention.dense",
        "layers.0.attention_norm": layer + "attention.LayerNorm",
        "layers.0.feed_forward.up": layer + "ffn",
        "layers.0.feed_forward.down": layer + "ffn_output",
        "layers.0.feed_forward_norm": layer + "full_layer_layer_norm",
    }
    load_strictly(module.encoder, rename(state, names))
    head = rename(state, {"dense": "predictions.dense", "norm": "predictions.LayerNorm"})
    load_strictly(module.head, head | {"bias": state["predictions.decoder.bias"]})
    load_strictly(module.pair.head, rename(state, {"dense": "albert.pooler", "out": "sop_classifier.classifier"}))
    assert_equals(module, batch, theirs, "sentence_order_label", "sop_logits")
