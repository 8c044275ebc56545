"""Sentence pairs against a reference in plain loops, over random stores; and that nothing but the text tells a pair's label."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mlm_lab.corruption.draws import Draws
from mlm_lab.data import pairs
from mlm_lab.data.pairs import PAIR_SPECIALS, SentencePairs, count_sentences, cut_chunks, gather_pairs, pair_next, pair_order
from mlm_lab.data.token_store import TokenStore
from tests.corruption.stores import VOCABULARY, make_store, odd_documents, stores

DRAWS = Draws(0, "train")
lengths = st.integers(5, 40)


def sentences_of(store: TokenStore) -> list[list[tuple[int, int]]]:
    """The documents as lists of sentences, each a range of tokens."""
    borders, starts = store.sentence_starts.tolist(), store.document_starts.tolist()
    return [list(zip(borders[a:b], borders[a + 1 : b + 1], strict=True)) for a, b in pairwise(starts)]


def document_of(store: TokenStore) -> np.ndarray:
    """(T,) document of each token."""
    return np.repeat(np.arange(store.num_documents), np.diff(store.document_offsets))


def independent_sentences(documents: int, mean_sentences: float, seed: int = 0) -> TokenStore:
    """Sentences whose lengths depend on nothing."""
    generator = np.random.default_rng(seed)
    counts = generator.geometric(1 / mean_sentences, size=documents)
    return make_store([(1 + generator.geometric(0.06, size=count)).tolist() for count in counts], seed)


def documents_of_many_styles(documents: int, seed: int = 0) -> TokenStore:
    """Documents of short and of long sentences, few and many: A tells much about its true continuation's length."""
    generator = np.random.default_rng(seed)
    counts = generator.geometric(1 / generator.choice([2, 12], size=documents))
    means = generator.choice([3, 8, 40], size=documents)
    return make_store([(1 + generator.poisson(mean, size=count)).tolist() for count, mean in zip(counts, means, strict=True)], seed)


def reference_chunks(store: TokenStore, room: int, short_seq_prob: float, draws: Draws, put_back_share: float) -> list[tuple[int, ...]]:
    """(start, middle, stop, document, put back) sentence by sentence, as BERT's script goes through a document."""
    found, first = [], 0
    epoch = np.asarray([draws.epoch])
    for number, sentences in enumerate(sentences_of(store)):
        begin = 0
        while begin < len(sentences) - 1:
            short, length, cut, coin = draws.uniform(epoch, np.asarray([first + begin]), "pair chunk", 4)[0]
            target = 2 + int(length * (room - 1)) if short < short_seq_prob else room
            chunk = [sentences[begin]]
            while begin + len(chunk) < len(sentences) and (len(chunk) < 2 or chunk[-1][1] - chunk[0][0] < target):
                chunk.append(sentences[begin + len(chunk)])
            middle = 1 + int(cut * (len(chunk) - 1))
            found.append((chunk[0][0], chunk[middle][0], chunk[-1][1], number, coin < put_back_share))
            begin += middle if coin < put_back_share else len(chunk)
        first += len(sentences)
    return found


@settings(max_examples=60, deadline=None)
@given(stores(), lengths, st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from([0.0, 0.5]), st.integers(0, 3), st.sampled_from([1, 4, 2**20]))
def test_trap_14_chunks_are_those_of_a_loop_and_unused_segments_are_put_back(
    store: TokenStore, length: int, short: float, put_back_share: float, epoch: int, block: int
) -> None:
    assume((count_sentences(store) >= 2).any())
    draws = replace(DRAWS, epoch=epoch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_BLOCK", block)
        chunks = cut_chunks(store, length - 3, short, draws, put_back_share=put_back_share, mirrored_share=0.0)
    # The store's documents without empty ones are what chunks count.
    number = np.cumsum(np.diff(store.document_offsets) > 0) - 1
    expected = [
        (*places, int(number[document]), back)
        for *places, document, back in reference_chunks(store, length - 3, short, draws, put_back_share)
    ]
    assert [tuple(row) for row in zip(*(array.tolist() for array in chunks), strict=True)] == expected


@settings(max_examples=60, deadline=None)
@given(stores(), lengths, st.integers(0, 5))
def test_trap_15_chunks_of_both_directions_cover_a_document_but_for_a_lone_sentence(store: TokenStore, length: int, seed: int) -> None:
    assume((count_sentences(store) >= 2).any())
    chunks = cut_chunks(store, length - 3, 0.1, Draws(seed, "train"), put_back_share=0.0, mirrored_share=0.5)
    covered = np.zeros(len(store.tokens), dtype=int)
    for start, middle, stop in zip(chunks.starts, chunks.middles, chunks.stops, strict=True):
        covered[start:stop] += 1
        assert start < middle < stop and np.isin([start, middle, stop], store.sentence_starts).all()
    assert covered.max() == 1
    for sentences in sentences_of(store):
        alone = [number for number, (start, stop) in enumerate(sentences) if not covered[start:stop].any()]
        assert alone in ([], [0], [len(sentences) - 1])


def check_pairs(store: TokenStore, plan: SentencePairs) -> None:
    """What holds for every plan: ranges of one document each, no longer than a row, none empty, cut at one side only."""
    document = document_of(store)
    sizes = plan.stops - plan.starts
    assert sizes.min() >= 1 and sizes.sum(axis=1).max() <= plan.max_length - PAIR_SPECIALS
    assert (document[plan.starts] == document[plan.stops - 1]).all()
    begins, ends = np.isin(plan.starts, store.sentence_starts), np.isin(plan.stops, store.sentence_starts)
    assert (begins | ends).all()
    whole = begins & ends
    assert (whole.all(axis=1) | (sizes.sum(axis=1) == plan.max_length - PAIR_SPECIALS)).all(), "only rows that are full are cut"


@settings(max_examples=100, deadline=None)
@given(stores(), lengths, st.integers(0, 5), st.integers(0, 2))
def test_trap_14_next_pairs_of_any_store(store: TokenStore, length: int, seed: int, epoch: int) -> None:
    assume((count_sentences(store) >= 2).sum() >= 2)
    plan = pair_next(store, length, 0.1, Draws(seed, "train", epoch=epoch))
    check_pairs(store, plan)
    document = document_of(store)
    is_random = plan.labels == 1
    assert plan.labels.sum() <= len(plan) // 2, "never more than half are random"
    assert (document[plan.starts[is_random, 0]] != document[plan.starts[is_random, 1]]).all()
    assert (document[plan.starts[~is_random, 0]] == document[plan.starts[~is_random, 1]]).all()
    assert (plan.starts[~is_random, 1] >= plan.stops[~is_random, 0]).all()


@settings(max_examples=100, deadline=None)
@given(stores(), lengths, st.integers(0, 5))
def test_trap_15_order_pairs_of_any_store(store: TokenStore, length: int, seed: int) -> None:
    assume((count_sentences(store) >= 2).any())
    plan = pair_order(store, length, 0.1, Draws(seed, "train"))
    check_pairs(store, plan)
    document = document_of(store)
    assert (document[plan.starts[:, 0]] == document[plan.starts[:, 1]]).all(), "never a random document"
    swapped = plan.labels == 1
    assert (plan.stops[~swapped, 0] <= plan.starts[~swapped, 1]).all() and (plan.stops[swapped, 1] <= plan.starts[swapped, 0]).all()


def test_trap_15_whole_pairs_are_consecutive() -> None:
    store = independent_sentences(2000, 6)
    for plan in (pair_next(store, 512, 0.0, DRAWS), pair_order(store, 512, 0.0, DRAWS)):
        whole = (plan.stops - plan.starts).sum(axis=1) < 512 - PAIR_SPECIALS
        following, preceding = plan.stops[:, 0] == plan.starts[:, 1], plan.stops[:, 1] == plan.starts[:, 0]
        assert whole.sum() > 1000 and (following == (plan.labels == 0))[whole].all()
        assert plan.label_names[1] != "swapped" or (preceding == (plan.labels == 1))[whole].all()


@pytest.mark.parametrize("length", [64, 128])
def test_trap_14_labels_of_20_000_pairs(length: int) -> None:
    store = independent_sentences(9000, 9)
    following, order = pair_next(store, length, 0.1, DRAWS), pair_order(store, length, 0.1, DRAWS)
    four_deviations = 2 / np.sqrt(20_000)
    assert min(len(following), len(order)) > (20_000 if length == 64 else 12_000)
    assert 0.5 - four_deviations < following.labels.mean() <= 0.5
    assert abs(order.labels.mean() - 0.5) < four_deviations
    again = pair_next(store, length, 0.1, DRAWS)
    assert (again.starts == following.starts).all() and (again.labels == following.labels).all()


def accuracy_of_lengths(plan: SentencePairs, features: np.ndarray) -> tuple[float, float]:
    """How often a table of the commonest label for each (10 x 10) cell of two features, made on one half, is right on the other; and how
    far from 0.5 chance reaches (4 standard deviations)."""
    cells = np.zeros(len(plan), dtype=np.int64)
    for column in features.T:
        cells = cells * 10 + np.searchsorted(np.quantile(column, np.linspace(0.1, 0.9, 9)), column)
    learnt = np.arange(len(plan)) % 2 == 0
    votes = np.bincount(cells[learnt], weights=plan.labels[learnt] - plan.labels[learnt].mean(), minlength=cells.max() + 1)
    right = (votes[cells[~learnt]] > 0) == plan.labels[~learnt]
    return float(right.mean()), float(2 / np.sqrt(len(right)))


def length_features(store: TokenStore, plan: SentencePairs) -> dict[str, np.ndarray]:
    sizes = plan.stops - plan.starts
    cut = [np.isin(places, store.sentence_starts) for places in (plan.starts, plan.stops)]
    counts = np.searchsorted(store.sentence_starts, plan.stops) - np.searchsorted(store.sentence_starts, plan.starts)
    return {
        "lengths": sizes,
        "sum and difference": np.stack([sizes.sum(axis=1), sizes[:, 0] - sizes[:, 1]], axis=1),
        "sentences": counts,
        "cut fronts": ~cut[0],
        "cut backs": ~cut[1],
    }


NO_LEAK = {
    "next, short documents": lambda: (store := independent_sentences(9000, 4), pair_next(store, 128, 0.1, DRAWS)),
    "next, long documents": lambda: (store := independent_sentences(1500, 60), pair_next(store, 128, 0.1, DRAWS)),
    "next, documents of many styles": lambda: (store := documents_of_many_styles(12000), pair_next(store, 64, 0.1, DRAWS)),
    "order, short documents": lambda: (store := independent_sentences(12000, 4), pair_order(store, 128, 0.1, DRAWS)),
    "order, long documents": lambda: (store := independent_sentences(1500, 60), pair_order(store, 64, 0.1, DRAWS)),
    "order, documents of many styles": lambda: (store := documents_of_many_styles(12000), pair_order(store, 64, 0.1, DRAWS)),
}


@pytest.mark.parametrize("case", NO_LEAK)
def test_trap_15_lengths_and_cuts_do_not_tell_the_label(case: str) -> None:
    store, plan = NO_LEAK[case]()
    assert len(plan) > 8000
    features_of = length_features(store, plan)
    if "styles" in case:  # how many sentences a length holds is the document's style: text that the model may use
        del features_of["sentences"]
    for name, features in features_of.items():
        accuracy, chance = accuracy_of_lengths(plan, features.astype(np.float64))
        assert accuracy < 0.5 + chance, name


def test_trap_14_a_random_segment_is_a_true_continuation_of_another_pair() -> None:
    store = documents_of_many_styles(3000)
    plan = pair_next(store, 10_000, 0.0, DRAWS)  # nothing is truncated
    chunks = cut_chunks(store, 10_000 - PAIR_SPECIALS, 0.0, DRAWS, put_back_share=0.5, mirrored_share=0.0)
    continuations = set(zip(chunks.middles.tolist(), chunks.stops.tolist(), strict=True))
    is_random = plan.labels == 1
    assert set(zip(plan.starts[:, 1].tolist(), plan.stops[:, 1].tolist(), strict=True)) <= continuations
    assert not np.isin(plan.starts[:, 1], store.document_offsets).any(), "no B begins a document"
    true = (chunks.stops - chunks.middles)[is_random]
    assert np.median(np.abs((plan.stops - plan.starts)[is_random, 1] - true)) <= 1
    assert len(np.unique(plan.starts[is_random, 1])) > 0.5 * is_random.sum(), "and not always the same ones"


@pytest.mark.parametrize("sentences", [300, 2])
def test_trap_14_two_documents_serve(sentences: int) -> None:
    store = make_store([[12] * 300, [3] * sentences])
    plan = pair_next(store, 64, 0.1, DRAWS)
    document = document_of(store)
    assert 0 < plan.labels.sum() <= len(plan) // 2
    assert ((document[plan.starts[:, 0]] != document[plan.starts[:, 1]]) == (plan.labels == 1)).all()


def trimmed_by_bert(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths after truncate_seq_pair of BERT's script."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=20), st.integers(2, 60))
def test_trap_14_truncation_trims_the_longer_side(sizes: list[tuple[int, int]], room: int) -> None:
    starts = np.arange(2 * len(sizes)).reshape(-1, 2) * 1000
    stops = starts + np.asarray(sizes)
    new_starts, new_stops = pairs._truncate(starts, stops, room, DRAWS)
    assert (new_stops - new_starts).tolist() == [list(trimmed_by_bert(*pair, room)) for pair in sizes]
    assert ((new_starts == starts) | (new_stops == stops)).all() and (new_starts >= starts).all() and (new_stops <= stops).all()


def test_trap_14_truncation_trims_front_or_back_with_probability_one_half() -> None:
    starts = np.tile([[0, 1000]], (20_000, 1))
    new_starts, _ = pairs._truncate(starts, starts + 100, 60, DRAWS)
    front = new_starts > starts
    assert (np.abs(front.mean(axis=0) - 0.5) < 2 / np.sqrt(20_000)).all()
    assert abs((front[:, 0] == front[:, 1]).mean() - 0.5) < 2 / np.sqrt(20_000)


@settings(max_examples=50, deadline=None)
@given(stores(), lengths, st.integers(0, 3))
def test_rows_are_laid_out_as_written_out_by_hand(store: TokenStore, length: int, seed: int) -> None:
    assume((count_sentences(store) >= 2).any())
    plan = pair_order(store, length, 0.1, Draws(seed, "train"))
    rows = gather_pairs(store, plan, np.arange(len(plan)))
    for row in range(len(plan)):
        first, second = (store.tokens[a:b].tolist() for a, b in zip(plan.starts[row], plan.stops[row], strict=True))
        ids = [VOCABULARY.cls_id, *first, VOCABULARY.sep_id, *second, VOCABULARY.sep_id]
        padding = [0] * (length - len(ids))
        assert rows.input_ids[row].tolist() == ids + [VOCABULARY.pad_id] * len(padding)
        assert rows.attention_mask[row].tolist() == [1] * len(ids) + padding
        assert rows.position_ids[row].tolist() == list(range(len(ids))) + padding
        assert rows.token_type_ids[row].tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1) + padding
        special = np.isin(np.arange(length), [0, len(first) + 1, *range(len(ids) - 1, length)])
        assert (rows.special[row] == special).all()
        assert (store.tokens[rows.source[row][~special]] == rows.input_ids[row][~special]).all()


def test_epochs_and_seeds_have_other_plans() -> None:
    store = independent_sentences(300, 8)
    for make in (pair_next, pair_order):
        plans = [make(store, 64, 0.1, draws) for draws in (DRAWS, replace(DRAWS, epoch=1), Draws(1, "train"), Draws(0, "validation"))]
        assert plans[0].redrawn
        assert len({plan.starts.tobytes() for plan in plans}) == 4


def test_odd_documents_serve() -> None:
    store = odd_documents()
    for make in (pair_next, pair_order):
        check_pairs(store, make(store, 128, 0.1, DRAWS))


def test_trap_16_the_plan_says_what_was_found() -> None:
    store = make_store([[3, 4]] * 5 + [[2]] * 2 + [[70, 1, 1]])
    lines = pair_order(store, 64, 0.0, DRAWS).describe()
    assert lines[0].startswith("sentence pairs 6: ") and "in order" in lines[0] and "swapped" in lines[0]
    assert lines[2] == "sentences of a document   1: 25.0%   2: 62.5%   3-4: 12.5%"
    assert lines[3] == "tokens of a sentence   1: 13.3%   2: 13.3%   3-4: 66.7%   65-128: 6.7%"
    balance = pair_next(independent_sentences(500, 8), 64, 0.1, DRAWS)
    assert f"{balance.labels.mean():.1%} random" in balance.describe()[0]
    assert balance.corpus_tokens == (balance.stops - balance.starts).sum()
