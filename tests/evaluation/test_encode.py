"""Examples as token ids: pairs, cuts, words, batches."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm_lab.evaluation.encode import NO_TOKEN, encode_texts, encode_words, longest_first, sorted_batches, training_batches
from mlm_lab.evaluation.task import SequenceExample, TaggedExample
from mlm_lab.types import IGNORE_INDEX

CLS, SEP = 2, 3


def test_pairs_have_two_segments(tokenizer):
    part = encode_texts([SequenceExample("good film", "bad", 1), SequenceExample("", "the film is", 0)], tokenizer, 32)
    good, film, bad, the, is_ = (tokenizer.encode(word)[0] for word in ("good", "film", "bad", "the", "is"))
    batch = part.batch(np.array([0, 1]), pad_id=0)
    assert batch["input_ids"].tolist() == [[CLS, good, film, SEP, bad, SEP], [CLS, SEP, the, film, is_, SEP]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1]]
    assert batch["labels"].tolist() == [1, 0]


def test_padding_is_masked(tokenizer):
    part = encode_texts([SequenceExample("good", None, 1), SequenceExample("good film", None, 0)], tokenizer, 32)
    batch = part.batch(np.array([1, 0]), pad_id=0)
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3], [0, 1, 2, 0]]
    assert batch["token_type_ids"].sum() == 0
    assert batch["input_ids"][1, 3] == 0


def test_special_tokens_in_text_are_text(tokenizer):
    """traps.md 2: what spells [SEP] is no separator."""
    part = encode_texts([SequenceExample("a [SEP] b", None, 0)], tokenizer, 32)
    assert list(part.ids[0]).count(SEP) == 1


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_longest_first_is_as_if_tokens_were_taken_one_by_one(a, b, room):
    left = [a, b]
    while sum(left) > room:
        left[0 if left[0] > left[1] else 1] -= 1
    assert longest_first(a, b, room) == tuple(left)


def test_cuts_are_counted_and_keep_the_beginning(tokenizer):
    part = encode_texts([SequenceExample("a b c d e f g h", "x y", 0), SequenceExample("a", "b", 0)], tokenizer, 10)
    assert part.truncated == 1
    assert tokenizer.decode(part.ids[0]) == "[CLS] a b c d e [SEP] x y [SEP]"


def test_trap_32_label_on_the_first_sub_token_only(tokenizer):
    part = encode_words([TaggedExample(("anna", "abc", "is"), ("B-PER", "O", "O"))], ("O", "B-PER"), tokenizer, 32)
    labels = part.batch(np.array([0]), pad_id=0)["labels"]
    assert labels.tolist() == [[IGNORE_INDEX, 1, 0, IGNORE_INDEX, IGNORE_INDEX, 0, IGNORE_INDEX]]


def test_trap_32_words_behind_the_cut_have_no_token(tokenizer):
    part = encode_words([TaggedExample(("anna", "abc", "is", "the"), ("O",) * 4)], ("O",), tokenizer, 6)
    assert part.word_tokens[0].tolist() == [1, 2, NO_TOKEN, NO_TOKEN]  # [CLS] anna a ##b ##c [SEP]
    assert (part.truncated, part.lost_words, len(part.ids[0])) == (1, 2, 6)
    whole = encode_words([TaggedExample(("anna", "abc"), ("O",) * 2)], ("O",), tokenizer, 6)
    assert (whole.truncated, whole.lost_words) == (0, 0)


def test_trap_32_a_sentence_is_read_in_the_middle_of_its_document(tokenizer):
    document = (("a", "b", "c"), ("anna", "de"), ("f",), ("g", "h", "i", "j"))
    examples = [TaggedExample(words, ("O",) * len(words), document, place) for place, words in enumerate(document)]
    part = encode_words(examples, ("O",), tokenizer, 9)
    assert [tokenizer.decode(ids).replace(" ##", "") for ids in part.ids] == [
        "[CLS] a b c anna de f [SEP]",  # nothing stands before it: all the room goes to what follows
        "[CLS] b c anna de f g [SEP]",
        "[CLS] anna de f g h i [SEP]",
        "[CLS] de f g h i j [SEP]",
    ]
    labels = part.batch(np.arange(4), pad_id=0)["labels"] != IGNORE_INDEX
    labelled = [tokenizer.decode(ids[row[: len(ids)]]) for ids, row in zip(part.ids, labels, strict=True)]
    assert labelled == ["a b c", "anna d", "f", "g h i j"], "its own words, each on its first sub-token"
    assert (part.truncated, part.lost_words, set(part.lengths.tolist())) == (0, 0, {9})
    alone = encode_words([example._replace(document=(), place=0) for example in examples], ("O",), tokenizer, 9)
    assert [tokenizer.decode(ids) for ids in alone.ids][1:3] == ["[CLS] anna d ##e [SEP]", "[CLS] f [SEP]"]


def test_trap_32_a_sentence_that_fills_the_row_is_cut_as_it_is_alone(tokenizer):
    words = ("anna", "abc", "is", "the")
    within = encode_words([TaggedExample(words, ("O",) * 4, (("x",), words, ("y",)), 1)], ("O",), tokenizer, 6)
    alone = encode_words([TaggedExample(words, ("O",) * 4)], ("O",), tokenizer, 6)
    assert within.ids[0].tolist() == alone.ids[0].tolist()
    assert within.word_tokens[0].tolist() == alone.word_tokens[0].tolist()
    assert (within.truncated, within.lost_words) == (1, 2)


def test_a_word_without_sub_tokens_keeps_its_place(tokenizer):
    part = encode_words([TaggedExample(("anna", "​ ", "is"), ("O", "O", "O"))], ("O",), tokenizer, 32)
    assert part.word_tokens[0].tolist() == [1, 2, 3]


def test_each_epoch_shows_every_example_once():
    lengths = np.random.default_rng(0).integers(3, 60, size=1234)
    batches = list(islice(training_batches(lengths, 16, seed=3), 2 * 78))
    for epoch in (batches[:78], batches[78:]):
        assert sorted(np.concatenate(epoch)) == list(range(1234))
    assert [list(batch) for batch in batches[:78]] != [list(batch) for batch in batches[78:]]


def test_batches_are_a_function_of_the_seed_and_no_sum_of_seed_and_epoch():
    """traps.md 8: the second epoch of one seed is not the first of the next."""
    lengths = np.full(64, 7)
    first, again, other = (list(islice(training_batches(lengths, 8, seed=seed), 16)) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert any((a != b).any() for a, b in zip(first[8:], other[:8], strict=True))


def test_lengths_of_a_batch_are_alike():
    lengths = np.random.default_rng(0).integers(3, 100, size=3200)
    padded = sum(len(batch) * lengths[batch].max() for batch in islice(training_batches(lengths, 16, seed=0), 200))
    assert padded < 1.1 * lengths.sum()


@pytest.mark.parametrize("tokens", [1, 50, 10**6])
def test_prediction_batches_hold_every_example_once(tokens):
    lengths = np.random.default_rng(0).integers(1, 30, size=277)
    batches = list(sorted_batches(lengths, tokens))
    assert sorted(np.concatenate(batches)) == list(range(277))
    assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= tokens for batch in batches)
