"""The decoder: what sees what, T5's buckets in one direction, FLOPs in closed form, every parameter in use, and T5 itself."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mlm_lab.models.decoder import TransformerDecoder, VocabularyProjection
from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.relative_bias import RelativeBias, relative_bucket
from mlm_lab.models.transformer import TransformerEncoder
from tests.models.conftest import encoder_config, make_vocabulary, recipe  # noqa: F401

T5 = {"activation": "relu", "norm": "rms", "norm_position": "pre", "embedding_norm": False, "final_norm": True, "norm_eps": 1e-6}
T5 |= {"bias": False, "positions": "none", "relative_bias": "zero", "type_vocab_size": 0}
VARIANTS = {
    "t5": T5,
    "factorised": {"embedding_size": 16, "share_layers": True},
    "local": T5 | {"local_window": 4, "global_every": 2},
    "untied": {"tie_output": False},
}


def make_stacks(config: Encoder) -> tuple[TransformerEncoder, TransformerDecoder]:
    torch.manual_seed(0)
    encoder = config.build(make_vocabulary())
    return encoder.eval(), TransformerDecoder(config, encoder.embeddings).eval()


def make_inputs(length: int = 7, memory_length: int = 11, width: int = 32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    memory_mask = torch.ones(3, memory_length, dtype=torch.long)
    memory_mask[1, 6:] = 0
    return {
        "input_ids": torch.randint(5, 96, (3, length), generator=generator),
        "attention_mask": torch.ones(3, length, dtype=torch.long),
        "memory": torch.randn(3, memory_length, width, generator=generator),
        "memory_mask": memory_mask,
        "memory_places": torch.randint(0, 6, (3, length), generator=generator),
    }


@pytest.mark.parametrize("bfloat16", [False, True], ids=["fused", "written out"])
def test_targets_are_seen_from_the_left_and_memory_where_it_is_real(recipe: str, bfloat16: bool):  # noqa: F811
    _, decoder = make_stacks(encoder_config(recipe, initializer_range=0.2))
    inputs = make_inputs()
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        before = decoder(**inputs)
        later = inputs | {"input_ids": torch.cat([inputs["input_ids"][:, :4], (inputs["input_ids"][:, 4:] + 1) % 90], dim=1)}
        after = decoder(**later)
        padded = inputs["memory"].masked_fill(inputs["memory_mask"][..., None] == 0, 9.0)
        unseen = decoder(**inputs | {"memory": padded})
        real = inputs["memory"].clone()
        real[1, 5] += 1
        seen = decoder(**inputs | {"memory": real})
    assert torch.equal(before[:, :4], after[:, :4]) and not torch.isclose(before[:, 4:], after[:, 4:]).all(dim=-1).any()
    assert torch.equal(before, unseen)
    assert torch.equal(before[[0, 2]], seen[[0, 2]]) and not torch.isclose(before[1], seen[1]).all(dim=-1).any()


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (16, 20), (8, 64)])
def test_buckets_in_one_direction_equal_transformers_t5(num_buckets: int, max_distance: int):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    offsets = torch.arange(-600, 601)
    expected = t5.T5Attention._relative_position_bucket(offsets, bidirectional=False, num_buckets=num_buckets, max_distance=max_distance)
    assert torch.equal(relative_bucket(offsets, num_buckets, max_distance, bidirectional=False), expected)


def test_neighbour_start_in_one_direction_looks_at_the_two_words_before_the_target():
    before_last, last, near, far = RelativeBias(4, 32, 128, neighbours=True, bidirectional=False)(50).detach()
    past = torch.ones(50, 50).tril().bool()
    assert (before_last.diagonal(-1) == 4).all() and (last.diagonal() == 4).all()
    assert before_last[past].count_nonzero() == 49 and last[past].count_nonzero() == 50
    assert all((head[49, :50].diff() >= 0).all() for head in (near, far))


def test_cross_attention_starts_on_the_neighbours_of_a_place_or_knows_none():
    _, decoder = make_stacks(encoder_config("relative"))
    mask, places = torch.ones(2, 9, dtype=torch.long), torch.tensor([[3, 0], [8, 5]])
    mask[0, 7:] = 0
    context = decoder._cross_context(mask, places)
    expected = torch.full((2, 4, 2, 9), float("nan"))
    for b, t, j in itertools.product(range(2), range(2), range(9)):
        offset = j - int(places[b, t])
        expected[b, :2, t, j] = torch.tensor([4.0 * (offset == -1), 4.0 * (offset == 1)])
        expected[b, 2:, t, j] = -torch.tensor([0.3, 0.05]) * min(abs(offset), 8)
    expected[0, :, :, 7:] = float("-inf")
    torch.testing.assert_close(context.score_bias.detach(), expected)
    for variant in ("t5", "untied"):
        _, other = make_stacks(encoder_config(**VARIANTS[variant]))
        assert other.cross_bias is None and other._cross_context(mask, places).score_bias is None


@pytest.mark.parametrize("width", [32, 128])
def test_cross_attention_starts_with_t5s_weights_whatever_the_rest_starts_with(width: int):
    """Raffel et al.'s code: queries, keys and values so that scores and values are of the size of their inputs."""
    _, decoder = make_stacks(encoder_config(hidden_size=width, initializer_range=0.02))
    for name, weight in decoder.named_parameters():
        if "cross_attention" in name and name.endswith("weight"):
            assert weight.std().item() == pytest.approx(width**-0.5, rel=0.1)
        elif name.endswith("qkv.weight"):
            assert weight.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("variant", [*VARIANTS, "bert", "modern", "relative"])
def test_flops_in_closed_form_and_every_parameter_is_used(variant: str):
    config = encoder_config(**VARIANTS[variant]) if variant in VARIANTS else encoder_config(variant)
    encoder, decoder = make_stacks(config)
    projection = VocabularyProjection(config, 96, 90)
    inputs, memory_ids = make_inputs(length=20, memory_length=50), torch.randint(5, 90, (3, 50))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        memory = encoder(memory_ids, inputs["memory_mask"])
        hidden = decoder(inputs["input_ids"], inputs["attention_mask"], memory, inputs["memory_mask"], inputs["memory_places"])
        logits = projection(hidden.flatten(0, 1), encoder.embedding_weight)
    expected = encoder.flops(3, 50) + decoder.flops(3, 20, 50) + projection.flops(60).total
    assert expected == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert projection.flops(60).head == 2 * 60 * 96 * config.embedding_width
    assert (logits[:, 90:] == float("-inf")).all()
    logits[:, :90].logsumexp(dim=1).sum().backward()
    stacks = torch.nn.ModuleList([encoder, decoder, projection])
    unused = [name for name, parameter in stacks.named_parameters() if parameter.grad is None]
    assert not unused, unused


def test_embeddings_are_one_with_the_encoders():
    encoder, decoder = make_stacks(encoder_config("bert"))
    assert decoder.embedding_weight is encoder.embedding_weight
    before = encoder.embedding_weight.clone()
    TransformerDecoder(encoder.config, encoder.embeddings)
    assert torch.equal(encoder.embedding_weight, before), "a second stack does not draw them anew"
