"""What each objective costs and what it is told: counted once, for plan, log and summary. Every option of conf/objective."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mlm_lab.data.token_store import TokenStore
from mlm_lab.training.course import Course
from mlm_lab.training.data import batch_facts
from mlm_lab.training.validation import HeldOut, evaluate
from tests.training.tiny_run import make_config, make_course, make_store, train

OBJECTIVES = sorted(path.stem for path in (Path(__file__).resolve().parents[2] / "conf" / "objective").glob("*.yaml"))


@pytest.fixture(params=OBJECTIVES, scope="module")
def course(request):
    return make_course(make_config(f"objective={request.param}"))


def test_flops_are_those_that_torch_counts(course):
    """To 2 %; generator and discriminator, encoder and decoder together."""
    batch = course.sample_batch()
    course.module.static_shapes = True
    # torch does not count the CPU's fused attention: written out, it is products.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        course.module(batch)
    course.module.static_shapes = False
    assert course.module.flops(batch).total == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert course.costs[0].flops.total == 3 * course.module.flops(batch).total


def test_a_decoders_inputs_are_positions_too(course):
    batch, facts = course.dataset(10)[0]
    masks = [array for name, array in batch.items() if name.endswith("attention_mask")]
    padding = sum((mask == 0).sum() for mask in masks)
    assert facts["padded_share"].tolist() == [padding, sum(mask.size for mask in masks)]
    cost = course.costs[0]
    assert (cost.positions, cost.padding) == (sum(mask.size for mask in masks), padding)
    assert cost.density == pytest.approx(sum(cost.targets.values()) / (cost.positions - padding))
    assert cost.targets == {name: int(count) for name, count in course.module.target_counts(course.sample_batch()).items()}


def test_facts_ask_for_nothing_that_only_some_objectives_have():
    facts = batch_facts({"input_ids": np.zeros((2, 3)), "attention_mask": np.array([[1, 1, 0], [1, 1, 1]])})
    assert {name: pair.tolist() for name, pair in facts.items()} == {"padded_share": [1.0, 6.0]}


def test_facts_hold_the_histogram_of_frequency_weights():
    counts = np.array([[1, 2, 0], [3, 0, 2]])
    facts = batch_facts({"input_ids": np.zeros((2, 3)), "attention_mask": np.ones((2, 3)), "selected_by_frequency": counts})
    assert [facts[f"selected_share_bin_{number}"].tolist() for number in range(3)] == [[4, 8], [2, 8], [2, 8]]


def test_a_run_writes_down_what_it_was_told_and_what_it_cost(course, tmp_path):
    config = course.config
    run = train(config, tmp_path)
    latest, totals, cost = run.recorder.latest, run.recorder.totals, course.costs[0]
    assert latest["train/supervision_density"] == pytest.approx(totals["supervised_positions"] / totals["positions"])
    assert latest["train/flops_per_token"] == pytest.approx(8 * cost.flops.total / totals["corpus_tokens"])
    assert latest["train/supervision_density"] == pytest.approx(cost.density, rel=0.2)
    assert f"train/{next(iter(cost.targets))}_perplexity" in latest, "traps 25: each objective its own column"
    densities = {name: latest[f"train/{name}_density"] for name in cost.targets} if len(cost.targets) > 1 else {}
    assert sum(densities.values()) == pytest.approx(latest["train/supervision_density"] if densities else 0)


def test_memory_counts_every_stack_of_layers():
    """A generator's activations, of a quarter of the width, and a decoder's, of its own rows; weights four times over."""
    words = ["budget.steps=10", "model.num_heads=4"]
    mlm, rtd, span, clm = (make_course(make_config(f"objective={name}", *words)) for name in ("mlm", "rtd", "span_corruption", "clm"))
    batch, encoder = mlm.sample_batch()["input_ids"].numel(), mlm.module.encoder
    layer = 17 * batch * encoder.num_layers * 4

    def activations(course):
        logits = 2 * 4 * course.costs[0].flops.head / (6 * course.config.model.embedding_width)
        return course.memory_bytes(None, 4) - 16 * course.parameters - logits

    assert activations(mlm) == pytest.approx(layer * 32) == pytest.approx(activations(clm))
    assert activations(rtd) == pytest.approx(layer * (32 + 8))
    written = span.sample_batch()["decoder_input_ids"].numel()
    assert activations(span) == pytest.approx(layer * 32 * (batch + written) / batch)
    half = mlm.memory_bytes(mlm.config.batch_size // 2, 4) - 16 * mlm.parameters
    assert 2 * half == pytest.approx(mlm.memory_bytes(None, 4) - 16 * mlm.parameters, abs=4)


def test_only_its_own_loss_is_a_probes(course):
    held_out = HeldOut(course.config.objective, course.validation, 32, 16, 8)
    values = evaluate(course.module, held_out, torch.device("cpu"))
    own = ["perplexity", *(f"{word}{what}" for word in ("", "masked_", "random_", "kept_") for what in ("loss", "accuracy"))]
    probes = {f"probe/{name}_{what}" for name in held_out.batches if name for what in own}
    assert {name for name in values if name.startswith("probe/")} == probes


def test_trap_13_a_causal_model_is_told_more():
    """511 targets of a row of 512 against 76 of its 510 candidates; the last row is shorter."""
    words = ["max_length=512", "objective.input_format=contiguous"]
    store = make_store("train")
    one_document = np.array([0, store.num_sentences])
    store = TokenStore.from_arrays(store.tokens, store.word_starts, store.sentence_starts, one_document, store.vocabulary, store.split)
    mlm, clm = (Course(make_config(f"objective={name}", *words), store, make_store("validation")) for name in ("mlm", "clm"))
    ratio = clm.costs[0].density / mlm.costs[0].density
    assert ratio == pytest.approx(511 / 76.8, rel=0.03)
