"""What frequencies and neighbours give, against counting by hand."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.token_store import TokenStore
from mlm_lab.training import baselines
from mlm_lab.training.baselines import NOTHING, PRIOR_COUNT, Frequencies, Targets, find_targets, neighbouring_tokens
from mlm_lab.types import ExampleKeys
from tests.training.tiny_run import VOCABULARY, make_config, make_store


def slow_pairs(store: TokenStore) -> Counter:
    """Pairs of neighbours, sentence by sentence and document by document."""
    pairs: Counter = Counter()
    tokens = store.tokens.tolist()
    for document in range(store.num_documents):
        first, last = store.document_starts[document : document + 2]
        text = []
        for sentence in range(first, last):
            start, stop = store.sentence_starts[sentence : sentence + 2]
            pairs[VOCABULARY.cls_id, tokens[start]] += 1
            pairs[tokens[stop - 1], VOCABULARY.sep_id] += 1
            text += tokens[start:stop]
        pairs.update(pairwise(text))
    return pairs


def slow_probability(store: TokenStore, token: int, left: int, right: int) -> float:
    pairs, counts = slow_pairs(store), Counter(store.tokens.tolist())
    possible = [*VOCABULARY.ordinary_ids.tolist(), VOCABULARY.unk_id]
    unigram = (counts[token] + 1) / sum(counts[other] + 1 for other in possible)
    sides = []
    if left != NOTHING:
        alone = sum(n for (first, second), n in pairs.items() if first == left and second != VOCABULARY.sep_id)
        sides.append((pairs[left, token] + PRIOR_COUNT * unigram) / (alone + PRIOR_COUNT))
    if right != NOTHING:
        alone = sum(n for (first, second), n in pairs.items() if second == right and first != VOCABULARY.cls_id)
        sides.append((pairs[token, right] + PRIOR_COUNT * unigram) / (alone + PRIOR_COUNT))
    return sum(sides) / len(sides) if sides else unigram


@pytest.fixture
def targets() -> Targets:
    """Pairs of the text, with both neighbours, one or none; a token that the text has next to none."""
    ids, left, right = [], [], []
    tokens = make_store("train").tokens.tolist()
    for place in range(40, 100, 3):
        ids.append(tokens[place])
        left.append(tokens[place - 1] if place % 2 else NOTHING)
        right.append(tokens[place + 1] if place % 5 else NOTHING)
    ids, left, right = [*ids, 7, 20, 59, 30], [*left, VOCABULARY.cls_id, 20, NOTHING, 11], [*right, 8, VOCABULARY.sep_id, NOTHING, NOTHING]
    return Targets(*(np.array(values) for values in (ids, left, right, ids)))


@pytest.mark.parametrize("block", [7, 100, 1 << 20])
def test_neighbours_are_counted_as_by_hand(targets, block, monkeypatch):
    monkeypatch.setattr(baselines, "BLOCK_TOKENS", block)
    monkeypatch.setattr(baselines, "MOST_BLOCKS", 10**6)
    store = make_store("train")
    found = Frequencies(store, targets).beside(targets.ids, targets.left, targets.right)
    expected = [slow_probability(store, *target) for target in zip(*(values.tolist() for values in targets[:3]), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert {-1} < set(targets.left.tolist()) and {-1} < set(targets.right.tolist())


@pytest.mark.parametrize("block", [1, 7, 10**6])
def test_every_pair_is_met_once(block, monkeypatch):
    monkeypatch.setattr(baselines, "BLOCK_TOKENS", block)
    monkeypatch.setattr(baselines, "MOST_BLOCKS", 10**6)
    store, found = make_store("train"), Counter()
    for first, second in neighbouring_tokens(store):
        found.update(zip(first.tolist(), second.tolist(), strict=True))
    assert found == slow_pairs(store)


def test_a_long_text_is_counted_on_evenly_spaced_blocks(monkeypatch):
    monkeypatch.setattr(baselines, "BLOCK_TOKENS", 20)
    monkeypatch.setattr(baselines, "MOST_BLOCKS", 6)
    pairs = sum(len(first) for first, _ in neighbouring_tokens(make_store("train")))
    assert 6 * 20 * 0.9 < pairs < 6 * 20 * 1.5


def test_the_probabilities_of_all_tokens_sum_to_one():
    store, ids = make_store("train"), np.append(VOCABULARY.ordinary_ids, VOCABULARY.unk_id)
    for left in (20, VOCABULARY.cls_id, NOTHING):
        for right in (22, VOCABULARY.sep_id, NOTHING):
            beside = Targets(ids, np.full_like(ids, left), np.full_like(ids, right), ids)
            assert Frequencies(store, beside).beside(*beside[:3]).sum() == pytest.approx(1)


def batch_of(recipe: str) -> dict[str, np.ndarray]:
    store, objective = make_store("validation", 20), make_config(f"objective={recipe}").objective
    plan = objective.plan(store, 32, Draws(0, "validation"))
    rows = np.arange(8)
    return objective.make_batch(store, plan, ExampleKeys(position=rows, epoch=np.zeros_like(rows), index=rows))


def test_masked_targets_have_the_neighbours_that_the_input_shows():
    batch = batch_of("mlm")
    found, number = find_targets(batch, VOCABULARY), 0
    hidden = 0
    for row in range(8):
        shown = [NOTHING if token in (VOCABULARY.mask_id, VOCABULARY.pad_id) else int(token) for token in batch["input_ids"][row]]
        for place, label in zip(batch["label_positions"][row], batch["labels"][row], strict=True):
            if label != -100:
                beside = [shown[place - 1], shown[place + 1] if place + 1 < 32 else NOTHING, shown[place]]
                assert [found.ids[number], found.left[number], found.right[number], found.own[number]] == [label, *beside]
                hidden, number = hidden + beside[:2].count(NOTHING), number + 1
    assert number == len(found.ids) and hidden


def test_targets_of_causal_models_and_decoders_follow_what_was_read_last():
    batch = batch_of("clm")
    found, used = find_targets(batch, VOCABULARY), batch["labels"] != -100
    assert (found.left == batch["input_ids"][used]).all() and (found.ids == batch["labels"][used]).all()
    assert (found.right == NOTHING).all() and (found.own == NOTHING).all()
    batch = batch_of("span_corruption")
    found, used = find_targets(batch, VOCABULARY), batch["labels"] != -100
    starts = batch["decoder_input_ids"][used] == VOCABULARY.pad_id
    assert starts.sum() == 8 and (found.left[starts] == NOTHING).all()
    assert (found.left[~starts] == batch["decoder_input_ids"][used][~starts]).all()


def test_the_unigram_by_hand():
    """A token that the training text never has is possible, not infinite."""
    store = make_store("train")
    tokens, ids = store.tokens.tolist(), np.array([7, 7, 59, 20])
    nothing = np.full(4, NOTHING)
    counts = {token: tokens.count(token) + 1 for token in (*range(5, 60), 1)}
    frequencies = Frequencies(store, Targets(ids, nothing, nothing, nothing))
    expected = [counts[token] / sum(counts.values()) for token in ids]
    np.testing.assert_allclose(frequencies.beside(ids, nothing, nothing), expected)
    assert math.isclose(frequencies.unigram.sum(), 1) and not frequencies.unigram[[0, 2, 3, 4, 60, 71]].any()
