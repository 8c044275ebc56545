"""The objectives on sentence pairs up to their batches: refusals, masks on pairs, sentence order alone, static plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.token_store import TokenStore
from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.objectives.mlm import MLM
from mlm_lab.objectives.mlm_nsp import MLMNSP
from mlm_lab.objectives.sentence_pairs import SentencePairObjective
from mlm_lab.objectives.sop import SOP
from mlm_lab.types import IGNORE_INDEX, Batch
from tests.corruption.stores import VOCABULARY, keys_of, make_store, many_documents, odd_documents, stores
from tests.models.conftest import encoder_config

CONF = Path(__file__).resolve().parents[2] / "conf" / "objective"
DRAWS = Draws(0, "train")
KINDS = [MLMNSP, SOP]


def defaults(name: str) -> dict[str, Any]:
    return {key: value for key, value in yaml.safe_load((CONF / f"{name}.yaml").read_text()).items() if key != "_target_"}


def objective(kind: type[SentencePairObjective], **changes: Any) -> SentencePairObjective:
    return kind(**defaults(kind.__module__.rpartition(".")[2]) | changes)


def original(batch: Batch) -> np.ndarray:
    """(B, L) the ids before they were masked."""
    ids = batch["input_ids"].copy()
    row, slot = np.nonzero(batch["labels"] != IGNORE_INDEX)
    ids[row, batch["label_positions"][row, slot]] = batch["labels"][row, slot]
    return ids


@settings(max_examples=40, deadline=None)
@given(stores(), st.integers(5, 40), st.sampled_from(KINDS), st.sampled_from(["token", "word", "span"]), st.data())
def test_trap_08_a_batch_equals_its_rows_bit_for_bit(store: TokenStore, length: int, kind: type, unit: str, data: st.DataObject) -> None:
    recipe = objective(kind, unit=unit, mask_ratio=0.4)
    try:
        plan = recipe.plan(store, length, DRAWS)
    except UserError:
        return
    index = data.draw(st.lists(st.integers(0, len(plan) - 1), min_size=1, max_size=6))
    epoch = data.draw(st.lists(st.integers(0, 50), min_size=len(index), max_size=len(index)))
    batch = recipe.make_batch(store, plan, keys_of(index, epoch))
    for row in range(len(index)):
        alone = recipe.make_batch(store, plan, keys_of(index[row : row + 1], epoch[row : row + 1]))
        assert alone.keys() == batch.keys()
        assert all((array[row : row + 1] == alone[name]).all() for name, array in batch.items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [many_documents, odd_documents])
def test_trap_15_segments_and_separators_come_after_the_swap_and_masks_after_both(kind: type, make: Any) -> None:
    store, recipe = make(), objective(kind)
    plan = recipe.plan(store, 64, DRAWS)
    batch = recipe.make_batch(store, plan, keys_of(range(len(plan))))
    assert (batch[recipe.label_name] == plan.labels).all() and set(plan.labels) == {0, 1}
    ids, lengths = original(batch), plan.stops - plan.starts
    columns = np.arange(64)
    ends = lengths.sum(axis=1)[:, None] + 3
    second = lengths[:, :1] + 2
    assert (ids[:, 0] == VOCABULARY.cls_id).all()
    assert ((ids == VOCABULARY.sep_id) == ((columns == second - 1) | (columns == ends - 1))).all()
    assert (batch["token_type_ids"] == ((columns >= second) & (columns < ends))).all()
    assert (batch["attention_mask"] == (columns < ends)).all() and (batch["position_ids"] == columns * (columns < ends)).all()
    assert (batch["corpus_tokens"] == ends[:, 0] - 3).all() and plan.corpus_tokens == batch["corpus_tokens"].sum()
    for row in range(0, len(plan), 7):
        for segment, first in ((0, 1), (1, int(second[row, 0]))):
            expected = store.tokens[plan.starts[row, segment] : plan.stops[row, segment]]
            assert (ids[row, first : first + len(expected)] == expected).all()


@pytest.mark.parametrize("kind", KINDS)
def test_trap_02_no_special_token_is_selected_and_the_ratio_is_over_the_rest(kind: type) -> None:
    store, recipe = many_documents(), objective(kind)
    plan = recipe.plan(store, 64, DRAWS)
    batch = recipe.make_batch(store, plan, keys_of(range(len(plan))))
    labelled = batch["labels"] != IGNORE_INDEX
    assert not VOCABULARY.is_special[np.setdiff1d(batch["labels"][labelled], [VOCABULARY.unk_id])].any()
    assert (labelled.sum(axis=1) == np.rint(0.15 * batch["corpus_tokens"])).all()
    assert batch["labels"].shape[1] == recipe.slots(64) and not batch["dropped_slots"].any()


def test_sentence_order_alone_masks_nothing() -> None:
    store, recipe = many_documents(), objective(SOP, mlm_weight=0.0)
    plan = recipe.plan(store, 64, DRAWS)
    index = keys_of(range(20))
    batch, masked = recipe.make_batch(store, plan, index), objective(SOP).make_batch(store, plan, index)
    assert batch.keys() == masked.keys() and recipe.slots(64) == batch["labels"].shape[1] == 1
    assert (batch["labels"] == IGNORE_INDEX).all() and not (batch["input_ids"] == VOCABULARY.mask_id).any()
    assert (batch["input_ids"] == original(masked)).all()
    assert (batch["sentence_order_label"] == masked["sentence_order_label"]).all(), "the arms differ in masks alone"
    assert recipe.probes() == {}


@pytest.mark.parametrize("kind", KINDS)
def test_trap_10_static_masks_stand_on_static_pairs(kind: type) -> None:
    store, recipe = many_documents(), objective(kind, duplicates=3)
    index = np.arange(10)
    batches = []
    for epoch in range(7):
        plan = recipe.plan(store, 64, replace(DRAWS, epoch=epoch))
        batches.append(recipe.make_batch(store, plan, keys_of(index, epoch)))
    for epoch in range(7):
        same = [all((batches[epoch][name] == batches[other][name]).all() for name in batches[0]) for other in range(7)]
        assert same == [(other - epoch) % 3 == 0 for other in range(7)]


@pytest.mark.parametrize("kind", KINDS)
def test_trap_12_the_probe_is_that_of_masked_tokens_alone(kind: type) -> None:
    store, length = many_documents(), 64
    recipe = objective(kind, mask_ratio=0.4, unit="word", replace_mix=(1.0, 0.0, 0.0), duplicates=2)
    expected, probe = MLM(**defaults("mlm")).probes()["mlm_15"], recipe.probes()["mlm_15"]
    draws = Draws(0, "validation")
    first, second = (one.make_batch(store, one.plan(store, length, draws), keys_of(range(8))) for one in (expected, probe))
    assert first.keys() == second.keys() and all((first[name] == second[name]).all() for name in first)


REFUSED = {
    "one document": ([[4, 5, 6] * 20], "2 documents or more", "1 documents, 0 of them of one sentence; 60 sentences"),
    "every line a document": ([[7]] * 50, "stand alone", "50 documents, 50 of them of one sentence; 50 sentences, 100% of them alone"),
    "mostly single sentences": ([[7]] * 50 + [[5, 5]] * 24, "stand alone", "74 documents, 50 of them of one sentence; 98 sentences, 51%"),
    "nothing": ([[]], "2 documents or more", "0 documents"),
    "one long document and single sentences": ([[5] * 90] + [[5]] * 60, "of two sentences or more", "61 documents, 60 of them"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", REFUSED)
def test_trap_16_a_corpus_that_cannot_serve_is_refused(kind: type, case: str) -> None:
    documents, problem, found = REFUSED[case]
    with pytest.raises(UserError, match=problem) as refusal:
        objective(kind).plan(make_store(documents), 64, DRAWS)
    assert found in refusal.value.given and "train split" in refusal.value.where
    assert refusal.value.fix


def test_trap_16_half_of_the_sentences_may_stand_alone() -> None:
    store = make_store([[7]] * 48 + [[5, 5]] * 24)
    assert len(objective(MLMNSP).plan(store, 64, DRAWS)) == 24


def test_trap_16_held_out_text_of_one_document_serves_for_order_alone() -> None:
    store = make_store([[4, 5, 6] * 20], split="validation")
    assert len(objective(SOP).plan(store, 64, DRAWS))
    with pytest.raises(UserError, match=r"validation_share"):
        objective(MLMNSP).plan(store, 64, DRAWS)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_room_are_refused(kind: type) -> None:
    store = many_documents()
    with pytest.raises(UserError, match="no room"):
        objective(kind).plan(store, 4, DRAWS)
    plan = objective(kind).plan(store, 5, DRAWS)
    assert ((plan.stops - plan.starts) == 1).all()


@pytest.mark.parametrize(
    ("field", "value"),
    [("short_seq_prob", 1.1), ("short_seq_prob", -0.1), ("mlm_weight", -1.0), ("pair_weight", -1.0), ("mask_ratio", 0.0)],
)
def test_ranges(field: str, value: float) -> None:
    with pytest.raises(InvalidFields, match=field):
        objective(SOP, **{field: value})


def test_one_of_the_two_losses_has_a_weight() -> None:
    with pytest.raises(InvalidFields, match="above 0 where mlm_weight is 0"):
        objective(SOP, mlm_weight=0.0, pair_weight=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_pair_loss_the_rows_and_masks_are_those_with_it(kind: type) -> None:
    store = many_documents()
    with_loss, without = (objective(kind, pair_weight=weight) for weight in (1.0, 0.0))
    one, other = (recipe.make_batch(store, recipe.plan(store, 48, DRAWS), keys_of(range(16))) for recipe in (with_loss, without))
    assert one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)


def test_a_model_with_one_segment_embedding_is_refused() -> None:
    with pytest.raises(UserError, match="two segments"):
        objective(SOP).build(encoder_config(type_vocab_size=1), VOCABULARY)
