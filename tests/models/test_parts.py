"""Shared layers, factorised embeddings, an output matrix of one's own, causal and local attention, narrower copies, shared embeddings."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.heads import MaskedLMHead
from mlm_lab.models.transformer import TransformerEncoder
from tests.models.conftest import encoder_config, make_vocabulary
from tests.models.test_attention import packed_row

KERNELS = pytest.mark.parametrize("written_out", [False, True], ids=["sdpa", "written out"])


def build(recipe: str = "bert", *, causal: bool = False, **changes: object) -> TransformerEncoder:
    torch.manual_seed(0)
    config = encoder_config(recipe, **({"initializer_range": 0.3} | changes))
    return config.build(make_vocabulary(), causal=causal).eval()


def reloaded(module: torch.nn.Module) -> torch.nn.Module:
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    fresh = copy.deepcopy(module)
    for parameter in fresh.parameters():
        torch.nn.init.normal_(parameter)
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    return fresh


MOVES = pytest.mark.parametrize("move", [lambda m: m, copy.deepcopy, lambda m: m.to(torch.float64).to(torch.float32), reloaded])


@MOVES
def test_trap_28_shared_layers_stay_one(move):
    encoder = move(build("albert", num_layers=3))
    assert len([name for name in encoder.state_dict() if name.endswith("qkv.weight")]) == 1
    row = packed_row()
    before = encoder(**row, output_hidden_states=True)
    with torch.no_grad():
        encoder.layers[0].feed_forward.down.bias += torch.linspace(-1, 1, 32)
    after = encoder(**row, output_hidden_states=True)
    assert len(before) == 4 and torch.equal(before[0], after[0])
    assert all(not torch.allclose(one, other, atol=1e-2) for one, other in zip(before[1:], after[1:], strict=True))


def test_shared_layers_have_the_parameters_of_one_and_the_gradient_of_all():
    def of_layers(encoder: TransformerEncoder) -> int:
        return sum(p.numel() for p in encoder.layers.parameters())

    shared, separate = build(share_layers=True, num_layers=6), build(num_layers=6)
    assert 6 * of_layers(shared) == of_layers(separate)
    for layer in separate.layers:
        layer.load_state_dict(shared.layers[0].state_dict())
    separate.embeddings.load_state_dict(shared.embeddings.state_dict())
    row = packed_row()
    outs = [encoder(**row) for encoder in (shared, separate)]
    assert torch.equal(*outs)
    for out in outs:
        out.pow(3).sum().backward()
    summed = sum(layer.attention.qkv.weight.grad for layer in separate.layers)
    torch.testing.assert_close(shared.layers[0].attention.qkv.weight.grad, summed, rtol=1e-4, atol=1e-4)


def test_factorised_embeddings_are_narrow_up_to_the_projection():
    encoder = build(embedding_size=8)
    tables = [p.shape[-1] for p in encoder.embeddings.parameters()]
    assert set(tables) == {8} and encoder.embedding_weight.shape == (96, 8)
    assert encoder.embedding_projection.weight.shape == (32, 8)
    assert isinstance(build(embedding_size=32).embedding_projection, torch.nn.Identity)
    head = MaskedLMHead(encoder.config, 96, 96)
    assert head(encoder(**packed_row()), encoder.embedding_weight).shape == (1, 20, 96)


def test_the_residual_stream_stays_in_float32_behind_the_projection():
    with torch.autocast("cpu", torch.bfloat16):
        states = build("modern", embedding_size=8)(**packed_row(), output_hidden_states=True)
    assert {state.dtype for state in states} == {torch.float32}


def test_an_output_matrix_of_its_own_makes_no_use_of_the_embeddings():
    config, hidden = encoder_config(tie_output=False, embedding_size=8), torch.randn(5, 32)
    torch.manual_seed(0)
    head = MaskedLMHead(config, 96, 90)
    assert head.weight.shape == (96, 8) and head.weight.std().item() == pytest.approx(0.02, rel=0.1)
    logits = head(hidden, torch.randn(96, 8))
    assert torch.equal(logits, head(hidden, torch.randn(96, 8))) and (logits[:, 90:] == float("-inf")).all()
    assert "weight" not in dict(MaskedLMHead(encoder_config(), 96, 90).named_parameters())


@KERNELS
def test_no_token_sees_the_next_one(recipe: str, written_out: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mlm_lab.models.transformer.writes_scores", lambda device, dtype: written_out)
    encoder = build(recipe, causal=True)
    ids = torch.randint(5, 96, (1, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    before = encoder(ids, mask)
    for place in range(20):
        changed = ids.clone()
        changed[0, place] = 4
        after = encoder(changed, mask)
        assert torch.equal(before[0, :place], after[0, :place])
        assert not torch.allclose(before[0, place:], after[0, place:], atol=1e-3)
    shorter = encoder(ids[:, :9], mask[:, :9])
    torch.testing.assert_close(before[:, :9], shorter, rtol=1e-5, atol=1e-5)


def test_trap_26_documents_of_a_causal_row_are_isolated(recipe: str):
    encoder, row = build(recipe, causal=True), packed_row()
    packed = encoder(**row)
    for start, stop in [(0, 7), (7, 12), (12, 16)]:
        ids = row["input_ids"][:, start:stop]
        torch.testing.assert_close(packed[:, start:stop], encoder(ids, torch.ones_like(ids)), rtol=1e-5, atol=1e-5)
    changed = row | {"input_ids": row["input_ids"].clone()}
    changed["input_ids"][0, :7] = 5
    assert torch.equal(packed[0, 7:16], encoder(**changed)[0, 7:16])


def test_a_causal_relative_bias_spends_all_buckets_on_what_came_before():
    bias = build("relative", causal=True).relative_bias
    by_offset = bias(40)[:, -1].flip(1)  # (H, distance 0 .. 39)
    assert by_offset[2].unique().numel() > 20, "16 single distances and the logarithmic ones"


def reach(encoder: TransformerEncoder, length: int = 30) -> list[set[int]]:
    """Offsets at which a change is seen by the middle token, after each layer."""
    ids = torch.randint(5, 96, (1, length), generator=torch.Generator().manual_seed(0))
    before, middle = encoder(ids, torch.ones_like(ids), output_hidden_states=True), length // 2
    seen: list[set[int]] = [set() for _ in before]
    for place in range(length):
        changed = ids.clone()
        changed[0, place] = 4
        after = encoder(changed, torch.ones_like(ids), output_hidden_states=True)
        for layer, (one, other) in enumerate(zip(before, after, strict=True)):
            if not torch.equal(one[0, middle], other[0, middle]):
                seen[layer].add(place - middle)
    return seen


@KERNELS
def test_local_layers_see_half_a_window_on_each_side(written_out: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mlm_lab.models.transformer.writes_scores", lambda device, dtype: written_out)
    everything = set(range(-15, 15))
    encoder = build("bert", local_window=6, global_every=3, num_layers=1)
    assert reach(encoder)[-1] == everything, "layer 0 is global"
    encoder = build("bert", local_window=6, global_every=3, num_layers=4)
    monkeypatch.setattr(Encoder, "is_local", lambda self, layer: layer != 2)
    assert reach(encoder) == [{0}, set(range(-3, 4)), set(range(-6, 7)), everything, everything]


@pytest.mark.parametrize(("every", "of_six"), [(1, "gggggg"), (2, "glglgl"), (3, "gllgll"), (9, "glllll")])
def test_every_nth_layer_is_global_the_first_among_them(every: int, of_six: str):
    config = encoder_config("local", global_every=every)
    assert "".join("gl"[config.is_local(layer)] for layer in range(6)) == of_six
    assert not encoder_config(global_every=every).is_local(1), "no window, no local layer"
    encoder, row = build("local", global_every=every, num_layers=6), packed_row()
    contexts = encoder.attention_contexts(row["attention_mask"], row["position_ids"])
    assert [context.allowed.sum() < contexts[0].allowed.sum() for context in contexts] == [kind == "l" for kind in of_six]


def test_local_layers_turn_by_their_own_base():
    contexts = build("local").attention_contexts(torch.ones(1, 9, dtype=torch.long), torch.arange(9)[None])
    by_base = [build("modern", rotary_base=base).attention_contexts(torch.ones(1, 9), torch.arange(9)[None])[0] for base in (1e4, 1e2)]
    assert all(torch.equal(context.rotary[0], other.rotary[0]) for context, other in zip(contexts, by_base, strict=True))
    one = build("local", local_rotary_base=None).attention_contexts(torch.ones(1, 9), torch.arange(9)[None])
    assert torch.equal(one[0].rotary[0], one[1].rotary[0])


@KERNELS
@pytest.mark.parametrize("causal", [False, True])
def test_flops_of_each_part_in_closed_form(recipe: str, causal: bool, written_out: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mlm_lab.models.transformer.writes_scores", lambda device, dtype: written_out)
    encoder = build(recipe, causal=causal, max_positions=96, num_layers=3)
    head, ids = MaskedLMHead(encoder.config, 96, 96), torch.randint(5, 96, (2, 96))
    math_kernel = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with math_kernel, FlopCounterMode(display=False) as counter:
        hidden = encoder(ids, torch.ones_like(ids))
    assert encoder.flops(2, 96) == pytest.approx(counter.get_total_flops(), rel=1e-6)
    with FlopCounterMode(display=False) as counter:
        head(hidden[0], encoder.embedding_weight)
    assert head.flops(96).total == counter.get_total_flops()
    assert head.flops(96).head == 2 * 96 * encoder.embedding_weight.numel()


# ELECTRA, table 6: the generator's hidden size, heads and feed-forward width at each size of the discriminator.
@pytest.mark.parametrize(
    ("width", "heads", "inner", "embedding", "ratio", "expected"),
    [
        (256, 4, 1024, 128, 1 / 4, (64, 1, 256, 128)),
        (768, 12, 3072, None, 1 / 3, (256, 4, 1024, 768)),
        (768, 12, 3072, 768, 0.333, (256, 4, 1024, 768)),
        (1024, 16, 4096, None, 1 / 4, (256, 4, 1024, 1024)),
        (128, 4, 320, None, 1 / 2, (64, 2, 160, 128)),
        (128, 4, 512, None, 1.0, (128, 4, 512, 128)),
    ],
)
def test_scaled_copies_keep_the_head_size_and_the_embeddings(width, heads, inner, embedding, ratio, expected):
    config = encoder_config(hidden_size=width, num_heads=heads, intermediate_size=inner, embedding_size=embedding, num_layers=12)
    scaled = config.scaled(ratio)
    assert (scaled.hidden_size, scaled.num_heads, scaled.intermediate_size, scaled.embedding_size) == expected
    assert scaled.num_layers == 12 and scaled.hidden_size // scaled.num_heads == width // heads


@pytest.mark.parametrize("ratio", [0.0, -0.25, 1.25, 0.1, 0.3, 1 / 3])
def test_a_ratio_that_does_not_divide_is_refused_with_those_that_do(ratio: float):
    with pytest.raises(UserError, match=r"1/4, 1/2, 3/4, 1$") as caught:
        encoder_config().scaled(ratio)
    assert str(ratio) in str(caught.value) and "num_heads=4" in str(caught.value)


def test_a_scaled_copy_shares_the_embeddings_that_it_is_given():
    torch.manual_seed(0)
    config = encoder_config()
    large = config.build(make_vocabulary())
    before = copy.deepcopy(large.state_dict())
    small = config.scaled(0.25).build(make_vocabulary(), embeddings=large.embeddings)
    assert small.embedding_weight is large.embedding_weight and small.embedding_projection.weight.shape == (8, 32)
    assert all(torch.equal(value, before[name]) for name, value in large.state_dict().items()), "and leaves them as they were"
    both = copy.deepcopy(torch.nn.ModuleList([large, small]))
    assert both[0].embedding_weight is both[1].embedding_weight, "also in a copy"
    small(**packed_row()).pow(3).sum().backward()
    assert large.embeddings.tokens.weight.grad.abs().sum() > 0 and large.embeddings.norm.weight.grad.abs().sum() > 0


def test_mistakes_in_the_new_fields_are_named_at_once():
    with pytest.raises(InvalidFields) as caught:
        encoder_config(embedding_size=0, local_window=7, global_every=0, local_rotary_base=1.0)
    assert [problem.field for problem in caught.value.problems] == ["embedding_size", "local_window", "global_every", "local_rotary_base"]


@pytest.mark.parametrize("causal", [False, True])
def test_parts_compile_without_a_graph_break(recipe: str, causal: bool):
    torch._dynamo.reset()
    encoder, row = build(recipe, causal=causal), packed_row()
    compiled = torch.compile(encoder, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(**row), encoder(**row))
