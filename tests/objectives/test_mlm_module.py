"""The masked-language-model module: losses, slots, padding rows of the vocabulary, tied weights."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from mlm_lab.objectives.mlm_module import MaskedLM
from mlm_lab.types import ObjectiveModule
from tests.models.conftest import encoder_config, make_vocabulary, recipe  # noqa: F401


def make_module(recipe: str = "bert", size: int = 104, padded_size: int = 104) -> MaskedLM:  # noqa: F811
    torch.manual_seed(0)
    return MaskedLM(encoder_config(recipe, initializer_range=0.2), make_vocabulary(size, padded_size))


def make_batch(batch_size: int = 6, used: tuple[int, ...] = (3, 0, 5, 1, 4, 2), slots: int = 5) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 90, (batch_size, 16), generator=generator)
    positions = torch.stack([torch.randperm(16, generator=generator)[:slots] for _ in range(batch_size)])
    unused = torch.arange(slots) >= torch.tensor(used)[:, None]
    labels = ids.gather(1, positions).masked_fill(unused, -100)
    return {
        "input_ids": ids.scatter(1, positions, 4),
        "attention_mask": torch.ones_like(ids),
        "label_positions": positions.masked_fill(unused, 0),
        "labels": labels,
    }


def gradients(module: MaskedLM, loss: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(module.parameters())))


def test_satisfies_the_contract():
    module = make_module()
    assert isinstance(module, ObjectiveModule)
    assert set(module.loss_weights) == set(module.target_counts(make_batch())) == set(module(make_batch()).losses) == {"mlm"}


def test_equals_the_dense_computation(recipe: str):  # noqa: F811
    module, batch = make_module(recipe), make_batch()
    hidden = module.encoder(batch["input_ids"], batch["attention_mask"])
    logits = module.head(hidden, module.encoder.embedding_weight)
    expected, correct = torch.zeros(()), 0
    for row in range(6):
        for position, label in zip(batch["label_positions"][row], batch["labels"][row], strict=True):
            if label != -100:
                expected = expected - logits[row, position].log_softmax(-1)[label]
                correct += int(logits[row, position].argmax() == label)
    out = module(batch)
    torch.testing.assert_close(out.losses["mlm"], expected, rtol=1e-5, atol=1e-5)
    assert out.losses["mlm"].dtype == torch.float32 and out.losses["mlm"].shape == ()
    assert out.metrics["mlm_loss"].count == out.metrics["mlm_accuracy"].count == module.target_counts(batch)["mlm"] == 15
    assert out.metrics["mlm_accuracy"].sum == correct
    torch.testing.assert_close(out.metrics["mlm_loss"].sum, expected.detach(), rtol=1e-5, atol=1e-5)
    assert not any(value.requires_grad for metric in out.metrics.values() for value in metric)


def test_accuracy_counts_hits():
    module, batch = make_module(), make_batch()
    logits = module.predict(batch["input_ids"], batch["attention_mask"], None, batch["label_positions"])
    batch["labels"] = torch.where(batch["labels"] == -100, -100, logits.argmax(-1))
    assert module(batch).metrics["mlm_accuracy"].sum == 15
    batch["labels"] = torch.where(batch["labels"] == -100, -100, (batch["labels"] + 1) % 90)
    assert module(batch).metrics["mlm_accuracy"].sum == 0


@pytest.mark.parametrize("static_shapes", [False, True])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_trap_4_no_target_is_a_loss_of_zero(static_shapes: bool, bfloat16: bool):
    module, batch = make_module(), make_batch(used=(0,) * 6)
    module.static_shapes = static_shapes
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        out = module(batch)
    assert out.losses["mlm"].item() == 0 and module.target_counts(batch)["mlm"] == 0
    assert all((gradient == 0).all() for gradient in gradients(module, out.losses["mlm"])), "and every parameter still has a gradient"


def test_trap_23_micro_batches_sum_to_the_batch():
    module, batch = make_module(), make_batch()
    whole = module(batch)
    loss, parts = whole.losses["mlm"], [module({k: v[i : i + 2] for k, v in batch.items()}) for i in (0, 2, 4)]
    torch.testing.assert_close(sum(part.losses["mlm"] for part in parts), loss, rtol=1e-6, atol=1e-6)
    assert sum(part.metrics["mlm_accuracy"].sum for part in parts) == whole.metrics["mlm_accuracy"].sum
    expected = gradients(module, loss)
    summed = [sum(part) for part in zip(*(gradients(module, part.losses["mlm"]) for part in parts), strict=True)]
    torch.testing.assert_close(summed, expected, rtol=1e-4, atol=1e-5)


def test_trap_24_compact_and_static_slots_agree():
    module, batch = make_module(), make_batch()
    compact = module(batch)
    expected = gradients(module, compact.losses["mlm"])
    module.static_shapes = True
    static = module(batch)
    torch.testing.assert_close(static.losses["mlm"], compact.losses["mlm"], rtol=1e-6, atol=0)
    assert static.metrics["mlm_accuracy"] == compact.metrics["mlm_accuracy"]
    torch.testing.assert_close(gradients(module, static.losses["mlm"]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("static_shapes", "rows"), [(False, 15), (True, 30)])
def test_trap_24_only_labelled_positions_reach_the_projection(static_shapes: bool, rows: int):
    module, seen = make_module(), []
    module.static_shapes, module.head.fused = static_shapes, False  # the fused way rounds the rows up with empty ones
    module.head.norm.register_forward_hook(lambda norm, inputs, output: seen.append(len(output)))  # what is projected
    module(make_batch())
    assert seen == [rows]


def test_flops_in_closed_form(recipe: str):  # noqa: F811
    module, batch = make_module(recipe), make_batch()
    module.static_shapes = True
    counter = FlopCounterMode(display=False)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), counter:
        loss = module(batch).losses["mlm"]
    flops = module.flops(batch)
    assert flops.total == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert flops.head == 2 * 30 * module.encoder.config.embedding_width * 104
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as backward:
        loss.backward()
    assert 3 * flops.total == pytest.approx(counter.get_total_flops() + backward.get_total_flops(), rel=0.02)


@pytest.mark.parametrize("bfloat16", [False, True])
def test_trap_27_padding_rows_of_the_vocabulary_are_never_predicted(bfloat16: bool):
    module, batch = make_module(size=90, padded_size=96), make_batch()
    with torch.no_grad():
        module.head.bias[90:] = 50.0  # a padding row that would win everywhere
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        logits = module.predict(batch["input_ids"], batch["attention_mask"], None, batch["label_positions"])
        out = module(batch)
    assert logits.shape == (6, 5, 90) and torch.isfinite(logits).all() and logits.dtype == torch.float32
    labels = batch["labels"]
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    torch.testing.assert_close(out.losses["mlm"], expected, rtol=1e-2 if bfloat16 else 1e-5, atol=0)
    out.losses["mlm"].backward()
    assert (module.head.bias.grad[90:] == 0).all() and (module.encoder.embedding_weight.grad[90:] == 0).all()
    assert module.head.bias.grad[:90].abs().min() > 0


def reloaded(module: MaskedLM) -> MaskedLM:
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    fresh = make_module()
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    return fresh


@pytest.mark.parametrize("move", [lambda m: m, copy.deepcopy, lambda m: m.to(torch.float64).to(torch.float32), reloaded])
def test_trap_28_tied_weights_stay_tied(move):
    batch = make_batch()
    module = move(make_module())
    matrices = [name for name, tensor in module.state_dict().items() if tensor.shape == (104, 32)]
    assert matrices == ["encoder.embeddings.tokens.weight"], "one matrix, and so one copy in a checkpoint"
    module(batch).losses["mlm"].backward()
    unseen = [token for token in range(5, 90) if not (batch["input_ids"] == token).any()]
    assert module.encoder.embedding_weight.grad[unseen].abs().sum(-1).min() > 0, "the projection reaches rows that no input has"
    before = module.predict(batch["input_ids"], batch["attention_mask"], None, batch["label_positions"])
    with torch.no_grad():
        module.encoder.embedding_weight[unseen] = 0
    after = module.predict(batch["input_ids"], batch["attention_mask"], None, batch["label_positions"])
    assert (after[..., unseen] == module.head.bias[unseen]).all()
    seen = [token for token in range(5, 90) if token not in unseen]
    torch.testing.assert_close(after[..., seen], before[..., seen])


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16], ids=["autocast", "bfloat16 weights"])
def test_cross_entropy_is_in_float32(weights: torch.dtype):
    module, batch = make_module().to(weights), make_batch()
    with torch.autocast("cpu", torch.bfloat16, enabled=weights == torch.float32):
        hidden = module.encoder(batch["input_ids"], batch["attention_mask"])
        rows = torch.arange(6)[:, None] * 16 + batch["label_positions"]
        used = batch["labels"] != -100
        logits = module.head(hidden.flatten(0, 1)[rows[used]], module.encoder.embedding_weight)
        loss = module(batch).losses["mlm"]
    assert logits.dtype == torch.bfloat16 and loss.dtype == torch.float32
    exact = F.cross_entropy(logits.double(), batch["labels"][used], reduction="sum")
    assert abs(loss.double() / exact - 1) < 1e-6


def test_static_slots_compile_without_a_graph_break(recipe: str):  # noqa: F811
    torch._dynamo.reset()
    module, batch = make_module(recipe), make_batch()
    module.static_shapes = True
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(batch).losses["mlm"], module(batch).losses["mlm"], rtol=1e-2, atol=0)
