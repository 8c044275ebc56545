"""The gradient of one optimiser step: one denominator for all its targets."""

from __future__ import annotations

import copy

import pytest
import torch

from mlm_lab.training.step import accumulate_gradients, clip_gradient, micro_batches
from mlm_lab.types import IGNORE_INDEX, Output
from tests.training.tiny_run import make_config, make_course


class Linear(torch.nn.Module):
    """A module whose losses are given: row b has batch["losses"][b] over batch["targets"][b] targets, times a weight of 1."""

    loss_weights = {"mlm": 1.0}

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def target_counts(self, batch):
        return {"mlm": batch["targets"].sum()}

    def forward(self, batch):
        return Output({"mlm": (batch["losses"] * batch["targets"]).sum() * self.weight}, {})


def gradient_of(module, batch, size, **kwargs):
    module.zero_grad()
    accumulate_gradients(module, batch, module.target_counts(batch), micro_batch_size=size, **kwargs)
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def test_one_denominator_for_the_whole_step():
    """traps 23: losses 2 (10 targets) and 4 (30 targets) make 3.5, not 3."""
    batch = {"input_ids": torch.zeros(2, 4), "losses": torch.tensor([2.0, 4.0]), "targets": torch.tensor([10, 30])}
    assert gradient_of(Linear(), batch, 1) == [pytest.approx(3.5)]
    assert gradient_of(Linear(), batch, None) == [pytest.approx(3.5)]


def test_no_target_at_all_is_a_loss_of_zero():
    """traps 4."""
    batch = {"input_ids": torch.zeros(2, 4), "losses": torch.tensor([2.0, 4.0]), "targets": torch.tensor([0, 0])}
    assert gradient_of(Linear(), batch, 1) == [0.0]


@pytest.fixture(scope="module")
def course():
    return make_course(make_config("objective.mask_count=bernoulli"))


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_micro_batches_give_the_gradient_of_the_step(course, size):
    """traps 23: on the real module, rows with different numbers of targets."""
    batch = course.sample_batch()
    whole, parts = gradient_of(course.module, batch, None), gradient_of(course.module, batch, size)
    for a, b in zip(whole, parts, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_the_gradient_is_that_of_the_mean_over_all_targets(course):
    batch = course.sample_batch()
    gradient = gradient_of(course.module, batch, 2)
    reference = copy.deepcopy(course.module)
    reference.zero_grad()
    (reference(batch).losses["mlm"] / (batch["labels"] != IGNORE_INDEX).sum()).backward()
    for a, b in zip(gradient, [p.grad for p in reference.parameters() if p.grad is not None], strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_a_step_without_masked_tokens_leaves_the_real_module_finite(course):
    """traps 4: the collective and the update happen, with a gradient of zero."""
    batch = dict(course.sample_batch())
    batch["labels"] = torch.full_like(batch["labels"], IGNORE_INDEX)
    assert all((g == 0).all() for g in gradient_of(course.module, batch, 3))


@pytest.mark.parametrize("size", [None, 1, 3, 8, 100])
def test_micro_batches_hold_each_row_once(course, size):
    batch = course.sample_batch()
    rows = torch.cat([part["input_ids"] for part in micro_batches(batch, size)])
    assert torch.equal(rows, batch["input_ids"])


def test_clipping():
    module = Linear()
    module.weight.grad = torch.tensor(8.0)
    assert clip_gradient(module, None) == 8
    assert module.weight.grad == 8
    assert clip_gradient(module, 2.0) == 8
    assert module.weight.grad == pytest.approx(2.0)


def test_facts_of_a_batch(course):
    batch, facts = course.dataset(40)[0]
    assert facts["corpus_tokens"][0] == batch["corpus_tokens"].sum() > 100
    assert facts["padded_share"].tolist() == [(batch["attention_mask"] == 0).sum(), batch["input_ids"].size]
    supervised = (batch["labels"] != IGNORE_INDEX).sum()
    assert sum(facts[name][0] for name in ("mask_share", "random_share", "keep_share")) == supervised
    masked = (batch["input_ids"] == course.train.vocabulary.mask_id).sum()
    assert facts["mask_share"].tolist() == [masked, supervised]


def test_tied_weights_stay_tied(course, tmp_path):
    """traps 28: through a copy, a file and a reload."""
    from mlm_lab.training.weights import fresh_module, load_weights, save_weights

    save_weights(course.module, tmp_path)
    again = fresh_module(make_config("seeds.init=5"), course.train.vocabulary)
    load_weights(again, tmp_path)
    assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in course.module.parameters())
    rows = again.encoder.embedding_weight
    assert torch.equal(rows, course.module.encoder.embedding_weight)
    batch = course.sample_batch()
    ids, mask, places = batch["input_ids"], batch["attention_mask"], torch.zeros(len(batch["input_ids"]), 1, dtype=torch.int64)
    before = again.predict(ids, mask, batch["position_ids"], places)
    unseen = next(token for token in range(5, 60) if not (ids == token).any())
    with torch.no_grad():
        rows[unseen] += torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(0))
    changed = (again.predict(ids, mask, batch["position_ids"], places) != before).flatten(0, 1).any(0)
    assert changed.nonzero().flatten().tolist() == [unseen], "the output side reads the row that the input side owns"
