"""Who may attend to whom, and that the kernels agree."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from mlm_lab.models import attention, chunked_attention
from mlm_lab.models.attention import AttentionContext, attend, block_mask
from mlm_lab.models.transformer import TransformerEncoder
from tests.models.conftest import encoder_config, make_vocabulary


def build(recipe: str, **changes: object) -> TransformerEncoder:
    """An encoder whose attention is far from uniform."""
    torch.manual_seed(0)
    return TransformerEncoder(encoder_config(recipe, **({"initializer_range": 0.3} | changes)), 96).eval()


def packed_row() -> dict[str, torch.Tensor]:
    """Documents of 7, 5 and 4 tokens and 4 of padding in a row."""
    lengths = [7, 5, 4]
    ids = torch.randint(5, 96, (1, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.cat([torch.full((n,), number) for number, n in enumerate(lengths, start=1)] + [torch.zeros(4, dtype=torch.long)])
    positions = torch.cat([torch.arange(n) for n in [*lengths, 4]])
    return {"input_ids": ids, "attention_mask": mask[None], "position_ids": positions[None]}


def test_trap_26_changing_one_document_leaves_the_others_unchanged(recipe: str):
    encoder, row = build(recipe), packed_row()
    before = encoder(**row)
    changed = row | {"input_ids": row["input_ids"].clone()}
    changed["input_ids"][0, :7] = 5
    after = encoder(**changed)
    assert torch.equal(before[0, 7:16], after[0, 7:16])
    assert not torch.allclose(before[0, :7], after[0, :7], atol=1e-2)


def test_trap_26_a_packed_row_equals_its_documents_alone(recipe: str):
    encoder, row = build(recipe), packed_row()
    packed = encoder(**row)
    for start, stop in [(0, 7), (7, 12), (12, 16)]:
        ids = row["input_ids"][:, start:stop]
        alone = encoder(ids, torch.ones_like(ids))
        torch.testing.assert_close(packed[:, start:stop], alone, rtol=1e-5, atol=1e-5)


def test_trap_26_documents_with_one_number_do_attend_to_each_other(recipe: str):
    encoder, row = build(recipe), packed_row()
    row["attention_mask"] = (row["attention_mask"] > 0).long()
    before = encoder(**row)
    row["input_ids"][0, :7] = 5
    assert not torch.allclose(before[0, 7:16], encoder(**row)[0, 7:16], atol=1e-3)


def test_padding_changes_nothing_and_a_row_of_padding_is_finite(recipe: str):
    encoder = build(recipe)
    ids = torch.randint(5, 96, (2, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, 8:], mask[1] = 0, 0
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(encoder(ids, mask)).all()
    other = ids.clone()
    other[0, 8:] = 9
    assert torch.equal(encoder(ids, mask)[0, :8], encoder(other, mask)[0, :8])
    torch.testing.assert_close(encoder(ids, mask)[:1, :8], encoder(ids[:1, :8], mask[:1, :8]), rtol=1e-5, atol=1e-5)


def scores_and_mask() -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    qkv = [torch.randn(2, 4, 20, 8, generator=generator).requires_grad_() for _ in range(3)]
    bias = (3 * torch.randn(4, 20, 20, generator=generator)).requires_grad_()
    return qkv, bias, block_mask(packed_row()["attention_mask"]).expand(2, 1, 20, 20)


def test_written_out_attention_equals_sdpa_with_its_gradients():
    qkv, bias, allowed = scores_and_mask()
    score_bias = torch.where(allowed, bias, float("-inf"))
    weight = torch.randn(2, 4, 20, 8, generator=torch.Generator().manual_seed(1))
    results = []
    for compute in (
        lambda: attend(*qkv, AttentionContext(allowed, score_bias, None), 0.0),
        lambda: F.scaled_dot_product_attention(*qkv, attn_mask=score_bias),
    ):
        out = compute()
        results.append([out, *torch.autograd.grad((out * weight).sum(), [*qkv, bias], retain_graph=True)])
    for ours, reference in zip(*results, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-5, atol=1e-5)


def test_both_kernels_give_the_same_encoder(monkeypatch: pytest.MonkeyPatch):
    row = packed_row()
    by_sdpa = build("modern")(**row)
    monkeypatch.setattr("mlm_lab.models.transformer.writes_scores", lambda device, dtype: True)
    torch.testing.assert_close(build("modern")(**row)[:, :16], by_sdpa[:, :16], rtol=1e-5, atol=1e-5)


def by_hand(q, k, v, borders, borders_k, longest, longest_k, *, window_size):
    """What varlen_attn computes: each segment by itself, within the window."""
    assert torch.equal(borders, borders_k) and borders[0] == 0 and borders[-1] == len(q) and longest == longest_k
    out = torch.empty_like(q)
    for start, stop in itertools.pairwise(borders.tolist()):
        assert stop - start <= longest
        place = torch.arange(stop - start)
        back = place[:, None] - place  # how far a key is to the left
        left, right = (len(q) if reach < 0 else reach for reach in window_size)
        parts = [x[start:stop].transpose(0, 1)[None] for x in (q, k, v)]
        out[start:stop] = F.scaled_dot_product_attention(*parts, attn_mask=(back <= left) & (-back <= right))[0].transpose(0, 1)
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("recipe", ["bert", "modern", "albert", "local"])
def test_attention_by_segments_gives_the_same_encoder(recipe: str, causal: bool, monkeypatch: pytest.MonkeyPatch):
    """Two rows, so that the padding of one is not joined to the next; gradients too."""
    monkeypatch.setattr(pytest.importorskip("torch.nn.attention.varlen"), "varlen_attn", by_hand)
    row = {name: torch.cat([value, value.flip(1)]) for name, value in packed_row().items()}
    results = []
    for by_segments in (False, True):
        torch.manual_seed(0)
        encoder = TransformerEncoder(encoder_config(recipe, initializer_range=0.3), 96, causal=causal).eval()
        encoder.by_segments = by_segments
        hidden = encoder(**row)
        real = hidden[row["attention_mask"] > 0]
        results.append([real, *torch.autograd.grad((real**3).sum(), [encoder.embedding_weight, encoder.layers[0].attention.qkv.weight])])
    for ours, reference in zip(*results, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-4 * float(reference.detach().abs().max()))


def test_bfloat16_is_near_float32(recipe: str):
    encoder, row = build(recipe, initializer_range=0.1), packed_row()
    exact = encoder(**row)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = encoder(**row)
    error = (rounded.float() - exact)[0, :16].norm() / exact[0, :16].norm()
    assert error < 0.005, error


def test_the_mask_is_made_once_a_forward(recipe: str, monkeypatch: pytest.MonkeyPatch):
    calls = []
    monkeypatch.setattr("mlm_lab.models.transformer.block_mask", lambda mask: calls.append(1) or attention.block_mask(mask))
    build(recipe, num_layers=3)(**packed_row())
    assert len(calls) == 1


def test_rotary_scores_depend_on_distance_alone():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 1, 8, generator=generator).expand(1, 1, 30, 8)
    turned = attention.rotate(x, attention.rotary_angles(torch.arange(30)[None], 8, 100.0))[0, 0]
    scores = turned @ turned.T
    torch.testing.assert_close(scores.diagonal(3), scores[0, 3].expand(27), rtol=1e-4, atol=1e-4)
    assert (scores.diagonal(0) - scores[0, 3]).abs().min() > 1e-2


@pytest.mark.parametrize("field", ["attention_dropout", "hidden_dropout"])
def test_dropout_acts_in_training_only(recipe: str, field: str):
    encoder, row = build(recipe, **{field: 0.5}), packed_row()
    assert torch.equal(encoder(**row), encoder(**row))
    encoder.train()
    assert not torch.equal(encoder(**row), encoder(**row))


@pytest.mark.parametrize("written_out", [False, True])
def test_attention_dropout_keeps_the_mean(written_out: bool):
    """Dropped weights are made up for by the rest, in either kernel."""
    qkv, bias, allowed = scores_and_mask()
    context = AttentionContext(allowed, torch.where(allowed, bias, float("-inf")) if written_out else None, None)
    exact = attend(*qkv, context, 0.0)
    torch.manual_seed(0)
    mean = torch.stack([attend(*qkv, context, 0.3) for _ in range(400)]).mean(0)
    assert (mean - exact).abs().mean() < 0.1 * exact.abs().mean()


def test_matching_heads_start_on_tokens_like_the_querys_own():
    """Trockman and Kolter 2023: of normalised vectors the equal one scores about sqrt(head size), unlike ones about 0."""
    torch.manual_seed(0)
    config = encoder_config(hidden_size=128, num_heads=4, relative_bias="matches", positions="none")
    encoder = config.build(make_vocabulary())
    x = F.layer_norm(torch.randn(1, 50, 128), (128,))
    for layer in encoder.layers:
        queries, keys, _ = layer.attention.qkv(x).view(50, 3, 4, 32).permute(1, 2, 0, 3)
        scores = queries @ keys.transpose(1, 2) / 32**0.5  # (H, 50, 50)
        equal, unlike = scores.diagonal(dim1=1, dim2=2), scores[:, ~torch.eye(50, dtype=torch.bool)]
        assert equal[2:].mean().item() == pytest.approx(32**0.5, rel=0.1) and unlike[2:].mean().abs() < 0.2
        assert scores[:2].abs().max() < 1.0


def test_matching_heads_are_made_without_memory_too():
    """As for the plan, which makes no weight."""
    with torch.device("meta"):
        assert encoder_config("relative", relative_bias="matches").build(make_vocabulary()).embedding_weight.is_meta


@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("piece", [1, 2, 4, 8])
def test_attention_in_pieces_equals_attention_at_once(piece: int, own_rows: bool, monkeypatch: pytest.MonkeyPatch):
    """The same bits forward, whatever the pieces: heads of a row, a row, two rows; a bias for all rows or for each."""
    monkeypatch.setattr(chunked_attention, "PIECE", piece * 20 * 20 * 4)
    qkv, bias, allowed = scores_and_mask()
    bias = bias.expand(2, 4, 20, 20) * torch.tensor([1.0, 0.5])[:, None, None, None] if own_rows else bias
    blocks, weight = attention.blocked(allowed, torch.float32), torch.randn(2, 4, 20, 8, generator=torch.Generator().manual_seed(1))
    results = []
    for context in (
        AttentionContext(allowed, bias + blocks, None),
        AttentionContext(allowed, None, None, parts=(bias, blocks)),
    ):
        out = attend(*qkv, context, 0.0)
        results.append([out, *torch.autograd.grad((out * weight).sum(), [*qkv, bias], retain_graph=True)])
    assert torch.equal(results[0][0], results[1][0])
    for ours, reference in zip(*results, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-5, atol=1e-6)


def test_scores_are_computed_in_pieces_where_they_would_be_a_large_block(recipe: str, monkeypatch: pytest.MonkeyPatch):
    """And the encoder is the same; with dropout in training they are computed at once."""
    called, inner = [], attention.attend_in_chunks
    monkeypatch.setattr(attention, "attend_in_chunks", lambda *given: called.append(1) or inner(*given))
    monkeypatch.setattr("mlm_lab.models.transformer.writes_scores", lambda device, dtype: True)
    encoder, row = build(recipe, attention_dropout=0.1), packed_row()
    expected = encoder(**row)
    assert not called
    monkeypatch.setattr(attention, "LARGEST_BLOCK", 100)
    torch.testing.assert_close(encoder(**row), expected, rtol=1e-5, atol=1e-5)
    assert len(called) == encoder.num_layers
    encoder.train()(**row)
    assert len(called) == encoder.num_layers
