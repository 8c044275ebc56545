"""What of an evaluation set stands in the training text."""

from __future__ import annotations

import numpy as np
import pytest

from mlm_lab.data.token_store import TokenStore
from mlm_lab.evaluation import overlap
from mlm_lab.evaluation.overlap import Overlap, find_overlaps, measure_overlaps, texts_of
from mlm_lab.evaluation.task import SequenceExample, TaggedExample
from mlm_lab.tokenizers.loading import LoadedTokenizer
from tests.tokenizers.trained import KINDS, train

CORPUS = (
    "It was the best of times, it was the worst of times, it was the age of wisdom. It was the age of foolishness.",
    "Anna lives in Berlin with nine cats and one old dog, the dog is good.",
    "The film is bad but the music of the film is very good indeed and we liked it.",
)


def make_store(tokenizer: LoadedTokenizer, documents: tuple[str, ...]) -> TokenStore:
    """Each document as one sentence."""
    ids, starts, lengths = tokenizer.encode_batch(documents)
    sentences = np.array([0, *np.cumsum(lengths)])
    return TokenStore.from_arrays(ids, starts, sentences, np.arange(len(documents) + 1), tokenizer.vocabulary)


def sentence(text: str, other: str | None = None) -> SequenceExample:
    return SequenceExample(text, other, 0)


def count(tokenizer: LoadedTokenizer, *examples, documents: tuple[str, ...] = CORPUS) -> Overlap:
    return find_overlaps(make_store(tokenizer, documents), tokenizer, {"part": examples})["part"]


def test_the_texts_of_an_example() -> None:
    assert texts_of(sentence("a b", "c")) == ["a b", "c"]
    assert texts_of(sentence("a b")) == ["a b"]
    assert texts_of(TaggedExample(("a", "b"), ("O", "O"), document=(("a", "b"), ("c",)))) == ["a b"]


def test_a_long_text_shares_thirteen_words_and_twelve_are_not_enough(tokenizer) -> None:
    start = "best of times it was the worst of times it was the age"  # 13 words of the first document
    assert count(tokenizer, sentence(f"xx yy {start} zz")) == Overlap(1, 1, 0)
    twelve = start.rsplit(" ", 1)[0]
    assert count(tokenizer, sentence(f"xx yy {twelve} zz")) == Overlap(1, 0, 0)


def test_a_short_text_shares_eight_words(tokenizer) -> None:
    assert count(tokenizer, sentence("Berlin with nine cats and one old dog.")) == Overlap(1, 1, 0)
    assert count(tokenizer, sentence("in Berlin with ten cats and one old dog, good")) == Overlap(1, 0, 0)


def test_texts_of_fewer_than_eight_words_are_too_short(tokenizer) -> None:
    found = count(tokenizer, sentence("Anna lives in Berlin"), sentence("one two three four five six seven eight"))
    assert found == Overlap(2, 0, 1) and found.share == 0.0
    assert count(tokenizer, sentence("Anna")).share is None


def test_case_and_punctuation_do_not_count(tokenizer) -> None:
    assert count(tokenizer, sentence("BERLIN, with 'nine' cats, and one... old dog")) == Overlap(1, 1, 0)


def test_either_text_of_a_pair_counts_and_no_run_goes_from_one_to_the_other(tokenizer) -> None:
    shared = "with nine cats and one old dog the dog"
    assert count(tokenizer, sentence("xx", shared), sentence(shared, "xx")) == Overlap(2, 2, 0)
    assert count(tokenizer, sentence("with nine cats and", "one old dog the dog")) == Overlap(1, 0, 1)


def test_no_run_goes_from_one_document_to_the_next(tokenizer) -> None:
    across = "old dog the dog is good the film is bad but the music"
    assert count(tokenizer, sentence(across)).shared == 0
    assert count(tokenizer, sentence(across), documents=(" ".join(CORPUS),)).shared == 1


def test_words_are_compared_whole_and_not_by_their_pieces(tokenizer) -> None:
    """The same letters, split into other words, are other words."""
    assert count(tokenizer, sentence("with nine cats and one old dog the")).shared == 1
    assert count(tokenizer, sentence("berlinwith nine cats and one old dog the")).shared == 0


def test_an_unknown_word_is_like_no_other(tokenizer) -> None:
    text = "nine cats and 猫 one old dog the dog"
    assert count(tokenizer, sentence(text), documents=(text,)).shared == 0


def test_a_tagged_sentence(tokenizer) -> None:
    words = ("Berlin", "with", "nine", "cats", "and", "one", "old", "dog")
    assert count(tokenizer, TaggedExample(words, ("O",) * len(words))) == Overlap(1, 1, 0)


def test_every_run_is_found_wherever_a_piece_of_the_store_ends(tokenizer, monkeypatch) -> None:
    text = " ".join(f"w{''.join('abcdefghij'[int(d)] for d in str(i))}" for i in range(120))
    words = text.split()
    examples = [sentence(" ".join(words[i : i + 13])) for i in range(len(words) - 12)]
    for size in (61, 100, 128, 1000):
        monkeypatch.setattr(overlap, "TOKENS_AT_A_TIME", size)
        assert count(tokenizer, *examples, documents=(text, CORPUS[0])) == Overlap(len(examples), len(examples), 0), size


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_vocabulary_finds_the_same(kind) -> None:
    ours = train(kind)
    text = "the value of the parameter is returned as a new array of the given shape and type"
    store = make_store(ours, (f"Note: {text}, or None.", "Something else."))
    found = find_overlaps(store, ours, {"a": [sentence(text.title())], "b": [sentence(text.replace("array", "arrow"))]})
    assert (found["a"].shared, found["b"].shared) == (1, 0)


def test_it_is_looked_for_once(tokenizer, tmp_path, monkeypatch) -> None:
    store = make_store(tokenizer, CORPUS)
    parts = {"dev": [sentence("Berlin with nine cats and one old dog")], "test": [sentence("Anna")]}
    first = measure_overlaps(store, tokenizer, parts, tmp_path, {"dev": "1", "test": "2"})
    assert first == {"dev": Overlap(1, 1, 0), "test": Overlap(1, 0, 1)}
    looked_for = []
    monkeypatch.setattr(
        overlap, "find_overlaps", lambda store, tokenizer, parts: looked_for.append(list(parts)) or find_overlaps(store, tokenizer, parts)
    )
    assert measure_overlaps(store, tokenizer, parts, tmp_path, {"dev": "1", "test": "2"}) == first
    assert looked_for == []
    measure_overlaps(store, tokenizer, parts, tmp_path, {"dev": "3", "test": "2"})
    assert looked_for == [["dev"]]
    other = make_store(tokenizer, CORPUS[:1])
    assert measure_overlaps(other, tokenizer, parts, tmp_path, {"dev": "1", "test": "2"})["dev"].shared == 0
