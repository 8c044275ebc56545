"""The fused loss against the plain one: the same numbers, whatever the precision, the labels and the scale of the gradient."""

from __future__ import annotations

import pytest
import torch

from mlm_lab.models import vocabulary_loss
from mlm_lab.models.decoder import VocabularyProjection
from mlm_lab.models.heads import MaskedLMHead
from mlm_lab.models.vocabulary_loss import TokenLoss, VocabularyHead
from mlm_lab.types import IGNORE_INDEX
from tests.models.conftest import encoder_config

SIZE, ROWS, TOKENS = 90, 96, 70
HEADS = {"masked": MaskedLMHead, "projection": VocabularyProjection}


@pytest.fixture(params=HEADS)
def head(request: pytest.FixtureRequest) -> VocabularyHead:
    torch.manual_seed(0)
    return HEADS[request.param](encoder_config(initializer_range=0.5), ROWS, SIZE)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows at a time, the last time one."""
    monkeypatch.setattr(vocabulary_loss, "CHUNK_BYTES", 3 * 4 * ROWS)


def compute(head: VocabularyHead, fused: bool, precision: str, ignored: bool = True, scale: float = 1.0) -> tuple[TokenLoss, list]:
    """The loss, and the gradients of hidden states, embeddings and the head's own parameters."""
    generator = torch.Generator().manual_seed(1)
    hidden, embeddings = (torch.randn(n, 32, generator=generator).requires_grad_() for n in (TOKENS, ROWS))
    labels = torch.randint(0, SIZE, (TOKENS,), generator=generator)
    labels[1::5] = head(hidden, embeddings).argmax(dim=-1)[1::5]  # some are right
    labels[::5] = IGNORE_INDEX if ignored else labels[::5]
    head.fused = fused
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        found = head.loss(hidden, embeddings, labels, torch.rand(TOKENS, generator=generator))
    return found, list(torch.autograd.grad(scale * found.total, [hidden, embeddings, *head.parameters()]))


def largest(x: torch.Tensor) -> float:
    return float(x.abs().max())


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize(("precision", "bound"), [("fp32", 1e-5), ("bf16", 2e-2)])
def test_equals_the_plain_loss_and_its_gradients(head: VocabularyHead, precision: str, bound: float, ignored: bool):
    (fused, gradients), (plain, expected) = (compute(head, way, precision, ignored, scale=0.01) for way in (True, False))
    torch.testing.assert_close(fused.each, plain.each, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fused.total, plain.total, rtol=1e-5, atol=1e-5)
    assert torch.equal(fused.correct, plain.correct) and fused.correct.any()
    assert (fused.sampled != plain.sampled).float().mean() <= 1 / TOKENS
    assert fused.total.dtype == torch.float32 and not fused.each.requires_grad
    for ours, theirs in zip(gradients, expected, strict=True):
        assert ours.dtype == theirs.dtype == torch.float32 and largest(theirs) > 0
        assert largest(ours - theirs) <= bound * largest(theirs)


def test_the_gradient_scales_with_that_of_the_sum(head: VocabularyHead):
    once, often = (compute(head, True, "fp32", scale=scale)[1] for scale in (1.0, 8.0))
    for a, b in zip(once, often, strict=True):
        torch.testing.assert_close(8 * a, b)


def test_rows_without_a_label_count_for_nothing(head: VocabularyHead):
    found, (hidden, *_) = compute(head, True, "fp32")
    assert largest(found.each[::5]) == 0 == largest(hidden[::5]) and not found.correct[::5].any()
    assert (found.each[2::5] > 0).all()


def test_products_have_few_sizes_whatever_the_number_of_tokens(head: VocabularyHead, monkeypatch: pytest.MonkeyPatch):
    """And the results as many rows as there are tokens."""
    seen, projected = set(), head.projected
    monkeypatch.setattr(head, "projected", lambda hidden, weight: seen.add(len(hidden)) or projected(hidden, weight))
    head.fused = True
    for count in range(1, 40):
        found = head.loss(torch.randn(count, 32), torch.randn(ROWS, 32), torch.arange(count), torch.rand(count))
        assert len(found.each) == len(found.correct) == len(found.sampled) == count
    assert seen == {16, 32, 48}


def test_padding_rows_of_the_vocabulary_get_no_gradient(head: VocabularyHead):
    found, (_, embeddings, *_) = compute(head, True, "fp32")
    assert largest(embeddings[SIZE:]) == 0 < largest(embeddings[:SIZE]) and found.sampled.max() < SIZE


def test_of_equal_logits_the_first_counts():
    """As argmax has it; in bfloat16 equal ones are common."""
    values = torch.tensor([[1.0, 3.0, 3.0, 0.0], [3.0, 1.0, 3.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    labels = torch.tensor([2, 0, 3])
    _, correct, _ = vocabulary_loss._consume(values.clone(), labels, None, with_gradient=False)
    assert correct.tolist() == (values.argmax(1) == labels).tolist() == [False, True, True]


def test_without_gradients_nothing_is_kept(head: VocabularyHead):
    with torch.no_grad():
        head.fused = True
        found = head.loss(torch.randn(4, 32), torch.randn(ROWS, 32), torch.tensor([1, 2, 3, IGNORE_INDEX]))
    assert not found.total.requires_grad and found.sampled is None and torch.isfinite(found.total)


def test_no_token_at_all(head: VocabularyHead):
    head.fused = True
    hidden = torch.zeros(0, 32, requires_grad=True)
    found = head.loss(hidden, torch.randn(ROWS, 32), torch.zeros(0, dtype=torch.long))
    found.total.backward()
    assert found.total == 0 and all(torch.isfinite(p.grad).all() for p in head.parameters() if p.grad is not None)


@pytest.mark.parametrize(("chosen", "expected"), [(None, True), (True, True), (False, False)])
def test_the_way_is_chosen_by_the_switch(head: VocabularyHead, monkeypatch: pytest.MonkeyPatch, chosen: bool | None, expected: bool):
    """By itself: fused on the CPU; a compiler has its own way."""
    called = []
    monkeypatch.setattr(vocabulary_loss, "plain_loss", lambda *given: called.append(given) or TokenLoss(*[torch.zeros(())] * 4))
    head.fused = chosen
    given = torch.randn(4, 32), torch.randn(ROWS, 32), torch.tensor([1, 2, 3, 4])
    head.loss(*given)
    assert bool(called) is not expected
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    called.clear()
    head.loss(*given)
    assert bool(called) is (chosen is not True)
