"""The span-corruption objective up to its batches; test_span_corruption_module.py holds the module that it builds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.token_store import TokenStore
from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.objectives.span_corruption import SpanCorruption
from mlm_lab.tokenizers.loading import LoadedTokenizer
from mlm_lab.types import IGNORE_INDEX, Batch, ExampleKeys
from tests.corruption.stores import VOCABULARY, keys_of, make_store, many_documents, odd_documents, stores
from tests.corruption.test_t5_spans import join_texts
from tests.tokenizers.trained import train

DRAWS = Draws(0, "train")
DEFAULTS = yaml.safe_load((Path(__file__).resolve().parents[2] / "conf" / "objective" / "span_corruption.yaml").read_text())
SPECIAL_LOOKING = [
    "[MASK] [SEP] <extra_id_0> [CLS] [PAD] <extra_id_1> </s>",
    "שלום עולם مرحبا بالعالم",
    "😀👩‍👩‍👧‍👦🏳️‍🌈 ☃️",
    "\x00\x07\x1b[31m\u200b\ufeff\u202e",
    "<extra_id_",
]


def span_corruption(**changes) -> SpanCorruption:
    return SpanCorruption(**{name: value for name, value in DEFAULTS.items() if name != "_target_"} | changes)


def check_rows(store: TokenStore, objective: SpanCorruption, max_length: int, keys: ExampleKeys | None = None) -> Batch:
    """Make all rows (or those of the keys): shapes, ids, shifted inputs, and the text that comes back by the order of the sentinels."""
    vocabulary, plan = store.vocabulary, objective.plan(store, max_length, DRAWS)
    batch = objective.make_batch(store, plan, keys or keys_of(range(len(plan))))
    rows, decoder = len(batch["input_ids"]), objective.decoder_length(max_length)
    wide = {"input_ids": max_length, "attention_mask": max_length, "position_ids": max_length}
    wide |= {"decoder_input_ids": decoder, "decoder_attention_mask": decoder, "labels": decoder}
    assert {name: array.shape for name, array in batch.items()} == {**{k: (rows, v) for k, v in wide.items()}, "corpus_tokens": (rows,)}
    assert all(array.dtype == np.int64 for array in batch.values())
    labels, real = batch["labels"], batch["decoder_attention_mask"] == 1
    assert ((labels == IGNORE_INDEX) == ~real).all() and set(np.unique(batch["attention_mask"])) <= {0, 1}
    shifted = np.append(np.full((rows, 1), vocabulary.pad_id), labels[:, :-1], axis=1)
    assert (batch["decoder_input_ids"] == np.where(real, shifted, vocabulary.pad_id)).all(), (
        "targets, one place later, behind the padding id"
    )
    assert all(batch[name].min() >= 0 and batch[name].max() < vocabulary.size for name in ("input_ids", "decoder_input_ids"))
    ids, written, text = batch["input_ids"].tolist(), labels.tolist(), store.tokens.tolist()
    for row, index in enumerate((keys or keys_of(range(len(plan)))).index):
        original = text[plan.starts[index] : plan.stops[index]]
        assert len(original) == batch["corpus_tokens"][row]
        assert join_texts(ids[row], written[row], vocabulary) == original
    return batch


@settings(max_examples=25, deadline=None)
@given(stores(), st.integers(14, 40), st.booleans(), st.booleans(), st.sampled_from([0.15, 0.3]), st.data())
def test_trap_08_a_batch_equals_its_rows_bit_for_bit(
    store: TokenStore, length: int, roll: bool, cross: bool, ratio: float, data: st.DataObject
) -> None:
    objective = span_corruption(roll=roll, cross_documents=cross, mask_ratio=ratio, mask_schedule="uniform", final_mask_ratio=0.4)
    plan = objective.plan(store, length, DRAWS)
    index = data.draw(st.lists(st.integers(0, len(plan) - 1), min_size=1, max_size=6))
    epoch = data.draw(st.lists(st.integers(0, 50), min_size=len(index), max_size=len(index)))
    batch = check_rows(store, objective, length, keys_of(index, epoch))
    for row in range(len(index)):
        alone = objective.make_batch(store, plan, keys_of(index[row : row + 1], epoch[row : row + 1]))
        assert all((array[row : row + 1] == alone[name]).all() and array.dtype == alone[name].dtype for name, array in batch.items())


@pytest.mark.parametrize(("cross_documents", "roll"), [(True, False), (False, True)])
def test_trap_22_documents_of_odd_sizes_come_back(cross_documents: bool, roll: bool) -> None:
    check_rows(odd_documents(), span_corruption(cross_documents=cross_documents, roll=roll), 64)


@pytest.fixture(scope="module")
def tokenizer() -> LoadedTokenizer:
    return train("bpe", vocab_size=500, characters=2000)


def test_trap_22_text_that_spells_special_tokens_comes_back(tokenizer: LoadedTokenizer) -> None:
    generator = np.random.default_rng(0)
    texts = ["".join(generator.choice(SPECIAL_LOOKING, size=generator.integers(1, 6))) for _ in range(200)]
    tokens, word_starts, lengths = tokenizer.encode_batch(texts)
    borders = np.append(0, np.cumsum(lengths))
    store = TokenStore.from_arrays(tokens, word_starts, borders, np.arange(len(texts) + 1), tokenizer.vocabulary)
    assert not np.isin(tokens, tokenizer.vocabulary.special_ids).any()
    check_rows(store, span_corruption(), 64)


def test_windows_run_over_documents_and_cover_the_store() -> None:
    store, objective = many_documents(60), span_corruption()
    plan = objective.plan(store, 64, DRAWS)
    assert plan.starts.tolist() == list(range(0, len(store.tokens) - 1, 70)) and plan.stops[-1] == len(store.tokens) - plan.dropped_tokens
    assert (plan.stops[:-1] - plan.starts[:-1] == 70).all() and plan.corpus_tokens + plan.dropped_tokens == len(store.tokens)
    apart = span_corruption(cross_documents=False).plan(store, 64, DRAWS)
    offsets = store.document_offsets
    assert (np.searchsorted(offsets, apart.starts, side="right") == np.searchsorted(offsets, apart.stops, side="left")).all()
    assert apart.corpus_tokens + apart.dropped_tokens == len(store.tokens)


def test_trap_21_full_windows_leave_no_padding() -> None:
    store, objective = make_store([[3000]]), span_corruption()
    batch = objective.make_batch(store, objective.plan(store, 64, DRAWS), keys_of(range(40)))
    assert batch["attention_mask"].all() and batch["decoder_attention_mask"].all() and batch["labels"].shape == (40, 14)
    assert (batch["position_ids"] == np.arange(64)).all()


def test_trap_11_schedules_change_what_is_cut_out_and_not_the_shapes() -> None:
    store = make_store([[9000]])
    objective = span_corruption(mask_schedule="linear", final_mask_ratio=0.3, mask_ratio=0.15)
    plan = objective.plan(store, 64, replace(DRAWS, horizon=80))
    index, position = np.zeros(5, dtype=np.int64), np.asarray([0, 20, 40, 60, 79])
    batch = objective.make_batch(store, plan, ExampleKeys(position=position, epoch=index, index=index))
    check_rows(store, objective, 64)
    text = ~np.isin(batch["labels"], [*VOCABULARY.sentinel_ids, VOCABULARY.sep_id, IGNORE_INDEX])
    assert text.sum(axis=1).tolist() == [round(70 * ratio) for ratio in (0.15, 0.1875, 0.225, 0.2625, 0.298125)]
    assert batch["labels"].shape == (5, 21 + 7 + 1), "as many places as the largest ratio needs"


def test_trap_21_more_spans_than_sentinels_are_refused() -> None:
    hundred = replace(VOCABULARY, size=300, padded_size=320, sentinel_ids=tuple(range(200, 300)))
    store = make_store([[2000]])
    store.vocabulary = hundred
    span_corruption().plan(store, 512, DRAWS)
    with pytest.raises(UserError, match=r"(?s)128 spans, 100 sentinels.*tokenizer.num_sentinels=128"):
        span_corruption(mask_ratio=0.5).plan(store, 512, DRAWS)
    falling = span_corruption(mask_ratio=0.5, mask_schedule="linear", final_mask_ratio=0.4)
    with pytest.raises(UserError, match="more spans than the tokenizer has"):
        falling.plan(store, 512, DRAWS)


@pytest.mark.parametrize(
    ("changes", "length", "message"),
    [
        ({}, 2, "no room"),
        ({"mean_span_length": 40.0}, 64, r"(?s)longer than what is cut out.*11 of 73.*mean_span_length"),
        ({"mask_ratio": 0.8, "mean_span_length": 1.0}, 32, r"(?s)too close.*objective.mean_span_length=\d"),
    ],
)
def test_what_the_text_cannot_serve_is_refused(changes: dict, length: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        span_corruption(**changes).plan(many_documents(20), length, DRAWS)


def test_the_fix_that_is_named_is_one() -> None:
    with pytest.raises(UserError) as refused:
        span_corruption(mask_ratio=0.8, mean_span_length=1.0).plan(many_documents(20), 16, DRAWS)
    fixed = int(refused.value.fix.partition("mean_span_length=")[2].partition(",")[0])
    span_corruption(mask_ratio=0.8, mean_span_length=float(fixed)).plan(many_documents(20), 16, DRAWS)


def test_a_store_without_text_is_refused() -> None:
    with pytest.raises(UserError, match="too small"):
        span_corruption().plan(make_store([[1]]), 64, DRAWS)


@pytest.mark.parametrize(
    "changes",
    [
        {"mask_ratio": 0.0},
        {"mask_ratio": 1.0},
        {"mean_span_length": 0.5},
        {"mask_schedule": "spiral"},
        {"mask_schedule": "linear"},
        {"mask_schedule": "linear", "final_mask_ratio": 1.0},
    ],
)
def test_values_out_of_range_are_refused(changes: dict) -> None:
    with pytest.raises(InvalidFields):
        span_corruption(**changes)
