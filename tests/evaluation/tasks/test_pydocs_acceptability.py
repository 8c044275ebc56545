from __future__ import annotations

from mlm_lab.evaluation.tasks.pydocs_acceptability import PydocsAcceptability, swap_words
from tests.evaluation.tasks.documentation import FIELDS, documentation, sentences_of

NAME = "pydocs_acceptability"
TASK = PydocsAcceptability(name=NAME, **FIELDS, train_examples=200, dev_examples=60)


def test_two_adjacent_words_change_places():
    for sentence in sentences_of(documentation(), "train"):
        before, after = sentence.split(), swap_words(sentence, NAME).split()
        places = [place for place, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert len(places) == 2 and places[1] == places[0] + 1
        assert [after[place] for place in places] == [before[place] for place in reversed(places)]


def test_equal_words_are_not_swapped():
    assert swap_words("That That that that THAT That.", NAME) is None
    assert swap_words("That that that that other That.", NAME) == "That that that other that That."


def test_the_first_word_and_words_beside_punctuation_stay():
    sentence = "Return the (value), or None, _x y."
    assert swap_words(sentence, NAME) is None


def test_a_sentence_and_its_swapped_twin_never_both_occur():
    entries = documentation()
    data = TASK.build(entries)
    given = {example.text_a: example.label for part in (data.train, data.dev) for example in part}
    for sentence in sentences_of(entries, "train") | sentences_of(entries, "validation"):
        assert not (sentence in given and swap_words(sentence, NAME) in given)
    assert all(label == (text in sentences_of(entries, "train") | sentences_of(entries, "validation")) for text, label in given.items())
