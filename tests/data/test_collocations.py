"""Collocations: the n-grams that PMI finds, against a count by hand; the cut of the text; the files beside the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from math import log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlm_lab.data import collocations
from mlm_lab.data.collocations import LONGEST, Collocations, Text, mine
from mlm_lab.data.token_store import SPLITS, TokenStore
from mlm_lab.errors import UserError
from tests.corruption.stores import VOCABULARY, many_documents

Word = tuple[int, ...]
Sentence = list[Word]


def text_of(sentences: list[Sentence]) -> Text:
    words = [word for sentence in sentences for word in sentence]
    tokens = np.asarray([token for word in words for token in word], dtype=np.uint16)
    starts = np.asarray([place == 0 for word in words for place in range(len(word))], dtype=bool)
    borders = np.cumsum([0, *(sum(map(len, sentence)) for sentence in sentences)])
    return Text(tokens, starts, borders)


def n_grams(sentences: list[Sentence], n: int) -> Iterator[tuple[Word, ...]]:
    for sentence in sentences:
        for start in range(len(sentence) - n + 1):
            yield tuple(sentence[start : start + n])


def pmi_by_hand(sentences: list[Sentence], fewest: int) -> dict[tuple[Word, ...], float]:
    """Every frequent n-gram, by the formula of the paper: the least over all 2^(n - 1) - 1 cuts."""
    counts = {n: Counter(n_grams(sentences, n)) for n in range(1, LONGEST + 1)}

    def log_p(gram: tuple[Word, ...]) -> float:
        return log(counts[len(gram)][gram] / counts[len(gram)].total())

    def cuts(n: int) -> Iterator[list[int]]:
        for pieces in range(1, n):
            for inner in combinations(range(1, n), pieces):
                yield [0, *inner, n]

    frequent = [gram for n in range(2, LONGEST + 1) for gram, count in counts[n].items() if count >= fewest]
    return {
        gram: min(
            log_p(gram) - sum(log_p(gram[a:b]) for a, b in zip(edges[:-1], edges[1:], strict=True))  # noqa: RUF007
            for edges in cuts(len(gram))
        )
        for gram in frequent
    }


def cut_by_hand(sentences: list[Sentence], kept: set[tuple[Word, ...]]) -> list[bool]:
    """Longest first, from left to right."""
    starts: list[bool] = []
    for sentence in sentences:
        inside = [False] * len(sentence)
        taken = [False] * len(sentence)
        for n in range(LONGEST, 1, -1):
            for place in range(len(sentence) - n + 1):
                if tuple(sentence[place : place + n]) in kept and not any(taken[place : place + n]):
                    taken[place : place + n] = [True] * n
                    inside[place + 1 : place + n] = [True] * (n - 1)
        for word, is_inside in zip(sentence, inside, strict=True):
            starts += [not is_inside] + [False] * (len(word) - 1)
    return starts


def all_kept(found: Collocations) -> Collocations:
    return Collocations(found.words, found.keys, tuple(np.ones_like(kept) for kept in found.kept))


WORDS = st.sampled_from([(5,), (6,), (7,), (5, 6), (6, 5), (5, 5, 5)])
SENTENCES = st.lists(st.lists(WORDS, min_size=1, max_size=12), min_size=1, max_size=12)


@settings(max_examples=80, deadline=None)
@example([[(5,)] * 40, [(6,)] * 40, [(7,)] * 40, *[[(5,), (6,), (7,)]] * 2], 2)  # the best cut is into three parts
@given(SENTENCES, st.sampled_from([2, 3]))
def test_the_pmi_and_the_cut_are_those_by_hand(sentences: list[Sentence], fewest: int) -> None:
    seen: dict[str, list[np.ndarray]] = {"pmi": []}

    def keep_all(pmi: np.ndarray) -> np.ndarray:
        seen["pmi"].append(pmi)
        return pmi > 0.1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collocations, "FEWEST_OCCURRENCES", fewest)
        patch.setattr(collocations, "_highest", keep_all)
        text = text_of(sentences)
        found = mine(text)
    expected = pmi_by_hand(sentences, fewest)
    for n, pmi in enumerate(seen["pmi"], start=2):
        assert np.allclose(sorted(pmi), sorted(value for gram, value in expected.items() if len(gram) == n))
    kept = {gram for gram, value in expected.items() if value > 0.1}
    assert found.starts(text).tolist() == cut_by_hand(sentences, kept)
    assert all_kept(found).starts(text).tolist() == cut_by_hand(sentences, set(expected))


def test_half_of_each_length_is_kept_at_most() -> None:
    assert collocations._highest(np.asarray([3.0, 1.0, 2.0, 1.0])).tolist() == [True, False, True, False]
    assert collocations._highest(np.asarray([-1.0, 1.0, -2.0, -0.5, -3.0, -4.0])).tolist() == [False, True, False, False, False, False]
    assert collocations._highest(np.zeros(0)).tolist() == []


@cache
def planted(rare: int = 40) -> list[Sentence]:
    """Words at random, with one pair and one triple that come far more often than their words would."""
    generator = np.random.default_rng(0)
    sentences = []
    for number in range(3000):
        sentence: Sentence = [(int(token),) for token in generator.integers(5, 45, size=12)]
        if number % rare == 0:
            sentence[3:5] = [(60,), (61, 62)]
        if number % rare == 1:
            sentence[3:6] = [(70,), (71,), (72,)]
        sentences.append(sentence)
    return sentences


def test_planted_collocations_are_found() -> None:
    sentences = planted()
    text = text_of(sentences)
    starts = mine(text).starts(text)
    for first, others in ((60, (61, 62)), (70, (71, 72))):
        places = np.flatnonzero(text.tokens == first)
        assert len(places) == 75 and starts[places].all()
        assert all(
            (~starts[places + offset]).all() and (text.tokens[places + offset] == token).all() for offset, token in enumerate(others, 1)
        )


def test_unknown_text_is_cut_into_words() -> None:
    found = mine(text_of(planted()))
    other = text_of([[(80,), (81, 82), (83,)], [(84,)]])
    assert found.starts(other).tolist() == other.word_starts.tolist()
    empty = Text(np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=bool), np.zeros(1, dtype=np.int64))
    assert mine(empty).starts(empty).tolist() == [] and len(mine(empty)) == 0


def in_memory(rare: int = 40) -> TokenStore:
    text = text_of(planted(rare))
    return TokenStore.from_arrays(*text, [0, len(text.sentence_starts) - 1], VOCABULARY)


def save(folder: Path, **stores: TokenStore) -> Path:
    """A folder as `TokenStore.open` reads it."""
    from mlm_lab.data.token_store import ARRAYS, Manifest, vocabulary_to_dict

    for split, store in stores.items():
        (folder / split).mkdir(parents=True)
        for name in ARRAYS:
            np.save(folder / split / f"{name}.npy", getattr(store, name))
    manifest = Manifest("f", "t", VOCABULARY.fingerprint, 1, {split: {} for split in SPLITS}, (), vocabulary_to_dict(VOCABULARY), ())
    (folder / "manifest.json").write_text(manifest.to_json())
    return folder


def test_files_are_made_once_beside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, validation = in_memory(), in_memory(rare=600)
    expected = mine(text_of(planted())).starts(text_of(planted(600)))
    monkeypatch.setattr(collocations, "BLOCK_TOKENS", 1000)
    folder = save(tmp_path / "stores" / "x", train=train, validation=validation)
    first = TokenStore.open(folder, "train").collocation_starts
    assert (first == train.collocation_starts).all(), "the cut does not depend on the blocks"
    monkeypatch.setattr(collocations, "mine", lambda text: pytest.fail("mined a second time"))
    assert (TokenStore.open(folder, "train").collocation_starts == first).all()
    assert (TokenStore.open(folder, "validation").collocation_starts == expected).all(), "the collocations are those of the training text"
    assert (TokenStore.open(folder, "validation").token_counts == train.token_counts).all(), "and so are the counts"
    beside = tmp_path / "stores" / "x-collocations-1"
    (beside / "train.npy").unlink()  # `first` maps the file
    np.save(beside / "train.npy", first[:-1])
    with pytest.raises(UserError, match="damaged"):
        _ = TokenStore.open(folder, "train").collocation_starts


def test_long_texts_are_mined_from_evenly_spaced_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collocations, "MINED_TOKENS", 6400)
    text = collocations._sample(in_memory())
    assert 5000 < len(text.tokens) < 7700 and text.sentence_starts[-1] == len(text.tokens)
    assert text.word_starts[text.sentence_starts[:-1]].all()
    assert (np.diff(text.sentence_starts) >= 12).all()


def test_a_store_of_random_words_is_read_whole() -> None:
    store = many_documents(50)
    assert (store.collocation_starts <= store.word_starts).all()
    assert store.collocation_starts[store.sentence_starts[:-1]].all(), "none goes across sentences"
