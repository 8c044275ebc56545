"""Packed rows against a row-by-row reference, over random stores."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm_lab.corruption.draws import Draws
from mlm_lab.data import packing
from mlm_lab.data.packing import INPUT_FORMATS, SHORTEST_ROW, PackedRows, gather_rows, pack_rows
from mlm_lab.data.token_store import TokenStore
from tests.corruption.stores import VOCABULARY, make_store, many_documents, odd_documents, stores

DRAWS = Draws(0, "train")
formats = st.sampled_from(INPUT_FORMATS)
lengths = st.integers(4, 40)


def document_of(store: TokenStore) -> np.ndarray:
    """(T,) document of each token."""
    return np.repeat(np.arange(store.num_documents), np.diff(store.document_offsets))


def reference_row(store: TokenStore, start: int, stop: int, length: int) -> tuple[list[int], list[int], list[int]]:
    """input_ids, attention_mask, position_ids, written out token by token."""
    documents = document_of(store)[start:stop]
    ids, numbers, positions = [], [], []
    for number, document in enumerate(dict.fromkeys(documents.tolist()), start=1):
        part = [VOCABULARY.cls_id, *store.tokens[start:stop][documents == document].tolist(), VOCABULARY.sep_id]
        ids += part
        numbers += [number] * len(part)
        positions += range(len(part))
    padding = [0] * (length - len(ids))
    return ids + [VOCABULARY.pad_id] * len(padding), numbers + padding, positions + padding


def places(store: TokenStore, start: int, stop: int) -> int:
    return int(stop - start + 2 * len(np.unique(document_of(store)[start:stop])))


@given(stores(), lengths, formats)
def test_trap_26_rows_are_laid_out_as_written_out_by_hand(store: TokenStore, length: int, input_format: str) -> None:
    plan = pack_rows(store, length, input_format, DRAWS)
    rows = gather_rows(store, plan, np.arange(len(plan)))
    for number in range(len(plan)):
        ids, documents, positions = reference_row(store, plan.starts[number], plan.stops[number], length)
        assert rows.input_ids[number].tolist() == ids
        assert rows.attention_mask[number].tolist() == documents
        assert rows.position_ids[number].tolist() == positions
        special = np.isin(ids, [VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.pad_id])
        assert (rows.special[number] == special).all()
        assert (store.tokens[rows.source[number][~special]] == rows.input_ids[number][~special]).all()


@given(stores(), lengths, formats)
def test_each_token_is_in_one_row(store: TokenStore, length: int, input_format: str) -> None:
    plan = pack_rows(store, length, input_format, DRAWS)
    covered = np.zeros(len(store.tokens), dtype=int)
    for start, stop in zip(plan.starts, plan.stops, strict=True):
        assert stop - start >= SHORTEST_ROW
        assert places(store, start, stop) <= length
        covered[start:stop] += 1
    assert covered.max(initial=0) <= 1
    assert (covered == 0).sum() == plan.dropped_tokens
    assert plan.corpus_tokens == covered.sum()
    assert (np.diff(plan.starts) > 0).all()


def greedy_rows(store: TokenStore, length: int, cross_documents: bool) -> list[tuple[int, int]]:
    """Sentence by sentence, as the packing is defined."""
    pieces = []
    for start, stop in zip(store.sentence_starts[:-1], store.sentence_starts[1:], strict=True):
        pieces += [(int(at), int(min(at + length - 2, stop))) for at in range(start, stop, length - 2)]
    rows: list[tuple[int, int]] = []
    documents = document_of(store)
    for start, stop in pieces:
        joins = rows and places(store, rows[-1][0], stop) <= length and (cross_documents or documents[rows[-1][0]] == documents[start])
        if joins:
            rows[-1] = (rows[-1][0], stop)
        else:
            rows.append((start, stop))
    return [row for row in rows if row[1] - row[0] >= SHORTEST_ROW]


@given(stores(), lengths, st.booleans(), st.sampled_from([1, 4, packing.SENTENCES_AT_A_TIME]))
def test_whole_sentences_are_packed_greedily(store: TokenStore, length: int, cross_documents: bool, at_a_time: int) -> None:
    """However many of them are looked at at a time."""
    with mock.patch.object(packing, "SENTENCES_AT_A_TIME", at_a_time):
        plan = pack_rows(store, length, "full_sentences" if cross_documents else "document_sentences", DRAWS)
    assert list(zip(plan.starts.tolist(), plan.stops.tolist(), strict=True)) == greedy_rows(store, length, cross_documents)


@given(stores(), lengths)
def test_contiguous_rows_are_full(store: TokenStore, length: int) -> None:
    plan = pack_rows(store, length, "contiguous", DRAWS)
    used = np.asarray([places(store, start, stop) for start, stop in zip(plan.starts, plan.stops, strict=True)])
    assert (used[:-1] >= length - 2).all()
    full = used[:-1] == length
    # where a place or two stay empty, the next row starts with another document: it would have taken three places
    next_starts = plan.stops[:-1][~full]
    assert np.isin(next_starts, store.document_offsets).all()


def test_documents_of_odd_sizes() -> None:
    store = odd_documents()
    assert store.num_documents == 500
    for input_format in INPUT_FORMATS:
        for length in (3, 16, 128, 513):
            plan = pack_rows(store, length, input_format, DRAWS)
            for start in range(0, len(plan), 999):
                index = np.arange(start, min(start + 7, len(plan)))
                rows = gather_rows(store, plan, index)
                assert rows.input_ids.shape == rows.attention_mask.shape == rows.position_ids.shape == (len(index), length)
                assert (rows.input_ids[rows.attention_mask == 0] == VOCABULARY.pad_id).all()
                assert ((rows.input_ids == VOCABULARY.cls_id) == ((rows.position_ids == 0) & (rows.attention_mask > 0))).all()


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
def test_nothing_to_pack(input_format: str) -> None:
    for documents in ([], [[]], [[1], [], [1]]):
        plan = pack_rows(make_store(documents), 3, input_format, DRAWS)
        assert len(plan) == 0 and plan.corpus_tokens == 0
        assert gather_rows(make_store(documents), plan, np.arange(0)).input_ids.shape == (0, 3)


def test_padded_share_of_full_sentences_is_small() -> None:
    store = many_documents()
    padded = {}
    for input_format in INPUT_FORMATS:
        plan: PackedRows = pack_rows(store, 128, input_format, DRAWS)
        padded[input_format] = (gather_rows(store, plan, np.arange(len(plan))).attention_mask == 0).mean()
    assert padded["contiguous"] < 0.01 < padded["full_sentences"] < 0.2 < padded["document_sentences"]
