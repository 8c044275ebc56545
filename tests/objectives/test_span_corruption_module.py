"""The span-corruption module: T5's loss with T5's weights, sums, slots, and what is counted."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from mlm_lab.objectives.span_corruption_module import SpanCorruptionModel
from mlm_lab.types import ObjectiveModule, Vocabulary
from tests.models.conftest import encoder_config, recipe  # noqa: F401
from tests.models.test_decoder import T5
from tests.models.test_transformers_equality import load_strictly, randomise, rename
from tests.training.tiny_run import make_config, make_course

WIDE = ["model.hidden_size=128", "model.intermediate_size=512"]
SENTINELS = tuple(range(89, 79, -1))
LENGTH, DECODER_LENGTH = 20, 9


def vocabulary(size: int = 90, padded_size: int = 96) -> Vocabulary:
    special = (0, 1, 2, 3, 4, *SENTINELS)
    return Vocabulary(
        size=size,
        padded_size=padded_size,
        pad_id=0,
        unk_id=1,
        cls_id=2,
        sep_id=3,
        mask_id=4,
        special_ids=special,
        sentinel_ids=SENTINELS,
        fingerprint="test",
    )


def make_module(name: str = "bert", **changes) -> SpanCorruptionModel:
    torch.manual_seed(0)
    config = encoder_config(**T5 | changes) if name == "t5" else encoder_config(name, initializer_range=0.2, **changes)
    return SpanCorruptionModel(config, vocabulary()).eval()


def make_batch(rows: int = 4) -> dict[str, torch.Tensor]:
    """Rows of 20 and 9 places; the second has 15 and 6, and the third no target at all."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(5, 80, (rows, DECODER_LENGTH), generator=generator)
    labels[:, 0], labels[:, 4], labels[:, 8] = SENTINELS[0], SENTINELS[1], 3
    mask, decoder_mask = torch.ones(rows, LENGTH, dtype=torch.long), torch.ones(rows, DECODER_LENGTH, dtype=torch.long)
    mask[1, 15:], decoder_mask[1, 6:], decoder_mask[2] = 0, 0, 0
    labels = labels.masked_fill(decoder_mask == 0, -100)
    ids = torch.randint(5, 80, (rows, LENGTH), generator=generator) * mask
    shifted = torch.cat([torch.zeros(rows, 1, dtype=torch.long), labels[:, :-1]], dim=1)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": torch.arange(LENGTH) * mask,
        "decoder_input_ids": shifted.clamp(min=0) * decoder_mask,
        "decoder_attention_mask": decoder_mask,
        "labels": labels,
    }


def gradients(module: nn.Module, loss: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(module.parameters())))


def t5_names(stack: str, cross: bool) -> dict[str, str]:
    block = stack + ".block.{}.layer."
    names = {
        "layers.{}.attention.qkv": ",".join(f"{block}0.SelfAttention.{part}" for part in "qkv"),
        "layers.{}.attention.out": block + "0.SelfAttention.o",
        "layers.{}.attention_norm": block + "0.layer_norm",
        "layers.{}.feed_forward.up": f"{block}{1 + cross}.DenseReluDense.wi",
        "layers.{}.feed_forward.down": f"{block}{1 + cross}.DenseReluDense.wo",
        "layers.{}.feed_forward_norm": f"{block}{1 + cross}.layer_norm",
        "relative_bias": stack + ".block.0.layer.0.SelfAttention.relative_attention_bias",
        "embeddings.tokens": "shared",
        "final_norm": stack + ".final_layer_norm",
    }
    if cross:
        names |= {
            "layers.{}.cross_attention.q": block + "1.EncDecAttention.q",
            "layers.{}.cross_attention.kv": ",".join(f"{block}1.EncDecAttention.{part}" for part in "kv"),
            "layers.{}.cross_attention.out": block + "1.EncDecAttention.o",
            "layers.{}.cross_norm": block + "1.layer_norm",
        }
    return names


def copy_t5(theirs: nn.Module, ours: SpanCorruptionModel) -> None:
    """T5 does not scale the scores: its queries times head_size^0.5 are ours. It scales the output: that is in our last norm."""
    state = theirs.state_dict()
    head_size = theirs.config.d_kv
    for name in list(state):
        if name.endswith("Attention.q.weight"):
            state[name] = state[name] * math.sqrt(head_size)
        if "DenseReluDense.wi_0" in name:  # gated: the activated half, then the gate
            state[name.replace("wi_0", "wi")] = torch.cat([state[name], state[name.replace("wi_0", "wi_1")]])
    if theirs.config.scale_decoder_outputs:
        state["decoder.final_layer_norm.weight"] = state["decoder.final_layer_norm.weight"] * theirs.config.d_model**-0.5
    load_strictly(ours.encoder, rename(state, t5_names("encoder", cross=False)))
    load_strictly(ours.decoder, rename(state, t5_names("decoder", cross=True)))


@pytest.mark.parametrize("kind", ["t5 1.0", "gated, output not scaled"])
def test_loss_and_logits_equal_transformers_t5(kind: str):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
    # So few buckets that those of one direction and of both differ at these lengths.
    sizes |= {"decoder_start_token_id": 0, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}
    buckets = {"relative_buckets": 8, "relative_max_distance": 16}
    if kind == "t5 1.0":
        config, ours = transformers.T5Config(**sizes), make_module("t5", **buckets)
    else:
        config = transformers.T5Config(**sizes, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
        config.dense_act_fn = "gelu"  # T5 1.1 approximates GELU by tanh, ours is exact
        ours = make_module("t5", activation="geglu", **buckets)
        assert not config.scale_decoder_outputs
    ours.projection.mask.zero_()  # T5 may predict its padding rows
    theirs = randomise(transformers.T5ForConditionalGeneration(config))
    copy_t5(theirs, ours)
    batch = make_batch()
    theirs_batch = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": batch["labels"]}
    expected = theirs(**theirs_batch)  # its decoder input is the labels, shifted right behind the padding id
    output = ours(batch)
    mean = output.losses["span"] / ours.target_counts(batch)["span"]
    torch.testing.assert_close(mean, expected.loss, rtol=1e-5, atol=1e-5)
    logits = ours.projection(ours.decode(batch), ours.encoder.embedding_weight)
    real = batch["labels"] != -100
    torch.testing.assert_close(logits[real], expected.logits[real], rtol=1e-5, atol=1e-5)
    assert expected.logits[real].std() > 0.1, "the weights must move the logits, or the comparison says nothing"
    (gradient,) = torch.autograd.grad(mean, ours.encoder.embedding_weight)
    expected.loss.backward()
    torch.testing.assert_close(gradient, theirs.shared.weight.grad, rtol=1e-3, atol=1e-4)


def test_satisfies_the_contract():
    module, batch = make_module(), make_batch()
    output = module(batch)
    assert isinstance(module, ObjectiveModule)
    assert set(module.loss_weights) == set(module.target_counts(batch)) == set(output.losses) == {"span"}
    assert output.losses["span"].dtype == torch.float32 and output.losses["span"].shape == ()
    assert not any(value.requires_grad for metric in output.metrics.values() for value in metric)


def test_metrics_tell_text_from_marks():
    """Three rows with targets: 9, 6 and 9, of which 3, 2 and 3 are sentinels and ends."""
    module, batch = make_module(), make_batch()
    log_probability = module.projection(module.decode(batch), module.encoder.embedding_weight).log_softmax(-1)
    text, everything = torch.zeros(()), torch.zeros(())
    for row in range(4):
        for place, label in enumerate(batch["labels"][row].tolist()):
            if label != -100:
                everything = everything - log_probability[row, place, label]
                text = text - log_probability[row, place, label] * (label not in (*SENTINELS, 3))
    output = module(batch)
    assert output.metrics["span_loss"].count == module.target_counts(batch)["span"] == 24
    assert output.metrics["span_accuracy"].count == output.metrics["span_text_loss"].count == 16
    torch.testing.assert_close(output.losses["span"], everything, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(output.metrics["span_text_loss"].sum, text, rtol=1e-5, atol=1e-5)
    best = log_probability.argmax(-1)
    assert output.metrics["span_accuracy"].sum == sum(
        int(best[row, place] == label)
        for row in range(4)
        for place, label in enumerate(batch["labels"][row].tolist())
        if label in range(5, 80)
    )


def test_a_decoder_position_writes_the_gap_of_the_last_sentinel_before_it():
    first, second, third = SENTINELS[:3]
    inputs = torch.tensor([[7, first, 8, 9, second, 6, 5, third, 3], [first, 7, second, 8, 3, 0, 0, 0, 0]])
    targets = torch.tensor([[0, first, 20, 21, second, 22, third, 23], [0, first, 20, second, 21, 0, 0, 0]])
    places = make_module("relative").gap_places({"input_ids": inputs, "decoder_input_ids": targets})
    assert places.tolist() == [[0, 1, 1, 1, 4, 4, 7, 7], [0, 0, 0, 2, 2, 2, 2, 2]]


def test_a_rows_own_gaps_are_looked_at():
    """Text beside the gap moves what is written there more than the same change elsewhere, from the first step on."""
    module, first = make_module("relative"), SENTINELS[0]
    ids = torch.full((3, LENGTH), 10)
    ids[:, 8], ids[:, -1] = first, 3
    ids[1, 9], ids[2, 15] = 40, 40
    targets = torch.tensor([[0, first, 12, 3]]).expand(3, -1)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "position_ids": torch.arange(LENGTH).expand(3, -1)}
    written = module.decode(batch | {"decoder_input_ids": targets, "decoder_attention_mask": torch.ones_like(targets)})[:, 1]
    beside, elsewhere = ((written[row] - written[0]).norm() for row in (1, 2))
    assert beside > 2 * elsewhere > 0


def test_trap_23_micro_batches_sum_to_the_batch(recipe: str):  # noqa: F811
    module, batch = make_module(recipe), make_batch()
    whole, parts = module(batch), [module({name: value[i : i + 2] for name, value in batch.items()}) for i in (0, 2)]
    torch.testing.assert_close(sum(part.losses["span"] for part in parts), whole.losses["span"], rtol=1e-5, atol=1e-5)
    for name, metric in whole.metrics.items():
        torch.testing.assert_close(sum(part.metrics[name].sum for part in parts), metric.sum, rtol=1e-5, atol=1e-5)
        assert sum(part.metrics[name].count for part in parts) == metric.count


def test_trap_24_compact_and_static_slots_agree():
    module, batch = make_module(), make_batch()
    compact = module(batch)
    expected = gradients(module, compact.losses["span"])
    module.static_shapes = True
    static = module(batch)
    torch.testing.assert_close(static.losses["span"], compact.losses["span"], rtol=1e-6, atol=0)
    torch.testing.assert_close(gradients(module, static.losses["span"]), expected, rtol=1e-4, atol=1e-5)
    assert all(static.metrics[name].count == metric.count for name, metric in compact.metrics.items())


@pytest.mark.parametrize("static_shapes", [False, True])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_trap_4_no_target_is_a_loss_of_zero(static_shapes: bool, bfloat16: bool):
    module, batch = make_module(), make_batch()
    module.static_shapes = static_shapes
    batch["labels"] = torch.full_like(batch["labels"], -100)
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        output = module(batch)
    assert output.losses["span"].item() == 0 and module.target_counts(batch)["span"] == 0
    assert all((gradient == 0).all() for gradient in gradients(module, output.losses["span"])), "every parameter still has a gradient"


@pytest.mark.parametrize("bfloat16", [False, True])
def test_trap_27_padding_rows_of_the_vocabulary_are_never_predicted(bfloat16: bool):
    module, batch = make_module(), make_batch()
    with torch.no_grad():
        module.encoder.embedding_weight[90:] *= 100
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        loss = module(batch).losses["span"]
    loss.backward()
    assert torch.isfinite(loss) and (module.encoder.embedding_weight.grad[90:] == 0).all()
    assert module.encoder.embedding_weight.grad[80:90].abs().sum(-1).min() > 0, "the projection is tied: it reaches rows that no input has"


def test_flops_count_both_stacks(recipe: str):  # noqa: F811
    module, batch = make_module(recipe), make_batch()
    module.static_shapes = True
    math_kernel = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with math_kernel, FlopCounterMode(display=False) as counter:
        loss = module(batch).losses["span"]
    flops = module.flops(batch)
    assert flops.total == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert flops.head == 2 * 4 * DECODER_LENGTH * module.encoder.config.embedding_width * 96
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as backward:
        loss.backward()
    assert 3 * flops.total == pytest.approx(counter.get_total_flops() + backward.get_total_flops(), rel=0.02)


@pytest.mark.parametrize("model", [["tiny"], ["tiny", "model.positions=learned", "model.relative_bias=none"], ["modern_tiny"], ["t5_tiny"]])
def test_the_encoder_is_told_its_positions_apart(model: list[str]):
    """At the start most of the gradient at the encoder's output differs from position to position. With cross-attention as small as the
    rest it was 5 % under model=tiny: the encoder was driven one way as a whole, and its output became one vector."""
    config = make_config("objective=span_corruption", "objective.mean_span_length=2", f"model={model[0]}", *model[1:], *WIDE)
    course, outputs = make_course(config), []
    course.module.encoder.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    batch = course.sample_batch()
    loss = course.module(batch).losses["span"]
    (gradient,), real = torch.autograd.grad(loss, outputs), (batch["attention_mask"] > 0)[..., None]
    common = (gradient * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
    assert ((gradient - common) * real).norm() > 0.5 * gradient.norm()


def test_it_learns_a_batch_by_heart():
    module, batch = make_module("t5", relative_bias="neighbours"), make_batch()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    for _ in range(60):
        loss = module(batch).losses["span"] / 24
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.5 and module(batch).metrics["span_accuracy"].sum >= 15
