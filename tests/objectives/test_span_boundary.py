"""SpanBERT's span-boundary objective: what the second prediction may look at, its sums, its costs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from mlm_lab.objectives.span_boundary import PLACES, MaskedSpans
from mlm_lab.types import ObjectiveModule
from tests.models.conftest import encoder_config, make_vocabulary, recipe  # noqa: F401
from tests.objectives.test_mlm import mlm

SPANS = [[(2, 5), (8, 9)], [(1, 4)], [(6, 7)]]
"""(first, stop) of the spans of each row."""


def make_module(recipe: str = "bert", size: int = 104) -> MaskedSpans:  # noqa: F811
    torch.manual_seed(0)
    return MaskedSpans(encoder_config(recipe, initializer_range=0.2), make_vocabulary(size, 104), 0.5)


def make_batch() -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 90, (3, 16), generator=torch.Generator().manual_seed(0))
    positions, labels = torch.zeros(3, 5, dtype=torch.long), torch.full((3, 5), -100)
    borders, inputs = torch.zeros(3, 5, 2, dtype=torch.long), ids.clone()
    for row, spans in enumerate(SPANS):
        slots = [(place, first - 1, stop) for first, stop in spans for place in range(first, stop)]
        for slot, (place, left, right) in enumerate(slots):
            positions[row, slot], labels[row, slot], inputs[row, place] = place, ids[row, place], 4
            borders[row, slot] = torch.tensor([left, right])
    mask = torch.ones_like(ids)
    return {"input_ids": inputs, "attention_mask": mask, "label_positions": positions, "labels": labels, "span_borders": borders}


def test_satisfies_the_contract():
    module, batch = make_module(), make_batch()
    assert isinstance(module, ObjectiveModule)
    names = {"mlm": 1.0, "sbo": 0.5}
    assert module.loss_weights == names and list(module(batch).losses) == list(module.target_counts(batch)) == list(names)
    probe = {name: value for name, value in batch.items() if name != "span_borders"}
    assert list(module(probe).losses) == list(module.target_counts(probe)) == ["mlm"]
    assert module(probe).losses["mlm"] == module(batch).losses["mlm"]


def test_equals_the_formula(recipe: str):  # noqa: F811
    """y = f(x_(s-1), x_(e+1), p_(i-s+1)), token by token."""
    module, batch = make_module(recipe), make_batch()
    hidden, head = module.encoder(batch["input_ids"], batch["attention_mask"]), module.boundary_head
    loss, correct, count = torch.zeros(()), 0, 0
    for row, spans in enumerate(SPANS):
        for first, stop in spans:
            for place in range(first, stop):
                label = batch["labels"][row][(batch["label_positions"][row] == place) & (batch["labels"][row] != -100)]
                joined = torch.cat([hidden[row, first - 1], hidden[row, stop], head.places.weight[place - first]])
                inner = head.norm(F.gelu(head.dense(joined)))
                logits = head.head(inner, module.encoder.embedding_weight)
                loss = loss - logits.log_softmax(-1)[label].squeeze()
                correct, count = correct + int(logits.argmax() == label), count + 1
    out = module(batch)
    torch.testing.assert_close(out.losses["sbo"], loss, rtol=1e-5, atol=1e-5)
    assert out.metrics["sbo_accuracy"].sum == correct and out.metrics["sbo_accuracy"].count == count == 8
    assert module.target_counts(batch)["sbo"] == 8


def test_static_and_compact_slots_agree():
    module, batch = make_module(), make_batch()
    compact = module(batch).losses["sbo"]
    expected = torch.autograd.grad(compact, module.boundary_head.parameters())
    module.static_shapes = True
    static = module(batch).losses["sbo"]
    torch.testing.assert_close(static, compact, rtol=1e-6, atol=0)
    torch.testing.assert_close(torch.autograd.grad(static, module.boundary_head.parameters()), expected, rtol=1e-4, atol=1e-5)


def test_trap_04_no_target_is_a_loss_of_zero():
    module, batch = make_module(), make_batch()
    batch["labels"] = torch.full_like(batch["labels"], -100)
    for static in (False, True):
        module.static_shapes = static
        out = module(batch)
        assert out.losses["sbo"] == 0
        sum(out.losses.values()).backward()
        assert all(parameter.grad is not None for parameter in module.parameters() if parameter.requires_grad)


def test_every_parameter_is_used_and_none_without_the_objective():
    vocabulary = make_vocabulary(104, 104)
    module, batch = mlm(span_boundary_weight=1.0).build(encoder_config(type_vocab_size=0), vocabulary), make_batch()
    sum(module(batch).losses.values()).backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    assert not any("boundary" in name for name, _ in mlm().build(encoder_config(), vocabulary).named_parameters())


def test_long_spans_share_the_last_place():
    head = make_module().boundary_head
    hidden, weight, labels = torch.randn(3, 32), torch.randn(104, 32), torch.full((4,), 7)
    borders = hidden[:1].expand(4, -1), hidden[1:2].expand(4, -1)
    losses = head(*borders, torch.tensor([PLACES - 1, PLACES, 500, PLACES - 2]), weight, labels).each
    assert losses[0] == losses[1] == losses[2] != losses[3]
    assert head(hidden[:1], hidden[1:2], torch.tensor([-1]), weight, labels[:1]).total.isfinite(), "an unused slot's place"


def test_trap_27_padding_rows_are_never_predicted():
    module, batch = make_module(size=90), make_batch()
    with torch.no_grad():
        module.boundary_head.head.bias[90:] = 50.0
    assert module(batch).losses["sbo"].isfinite()
    module(batch).losses["sbo"].backward()
    assert (module.boundary_head.head.bias.grad[90:] == 0).all()


@pytest.mark.parametrize("borders", [True, False])
def test_flops_in_closed_form(borders: bool, recipe: str):  # noqa: F811
    module, batch = make_module(recipe), make_batch()
    if not borders:
        del batch["span_borders"]
    module.static_shapes = True
    counter = FlopCounterMode(display=False)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), counter:
        module(batch)
    assert module.flops(batch).total == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_static_slots_compile_without_a_graph_break():
    torch._dynamo.reset()
    module, batch = make_module(), make_batch()
    module.static_shapes = True
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(batch).losses["sbo"], module(batch).losses["sbo"], rtol=1e-4, atol=0)
