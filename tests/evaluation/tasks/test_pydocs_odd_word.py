from __future__ import annotations

from collections import Counter

from mlm_lab.evaluation.tasks.pydocs_odd_word import PLAIN_WORD, FrequencyBands, PydocsOddWord
from mlm_lab.evaluation.tasks.pydocs_sentences import Sentence, sentences_by_split
from tests.evaluation.tasks.documentation import FIELDS, documentation, entry, sentences_of

NAME = "pydocs_odd_word"
TASK = PydocsOddWord(name=NAME, **FIELDS, train_examples=200, dev_examples=60)


def bands_of(entries):
    return FrequencyBands(sentences_by_split(entries, NAME)[0])


def test_an_odd_sentence_has_exactly_two_words_replaced():
    entries = documentation()
    bands = bands_of(entries)
    for sentence in sentences_of(entries, "train"):
        odd = bands.replace_words(sentence, NAME)
        changed = [(a, b) for a, b in zip(sentence.split(), odd.split(), strict=True) if a != b]
        assert len(changed) == 2


def test_a_word_gives_way_to_one_of_like_frequency():
    entries = documentation()
    bands = bands_of(entries)
    counts = Counter(word for sentence in sentences_of(entries, "train") for word in PLAIN_WORD.findall(sentence))
    for sentence in sentences_of(entries, "train"):
        for before, after in zip(sentence.split(), bands.replace_words(sentence, NAME).split(), strict=True):
            if before != after:
                assert 0.5 < counts[after.rstrip(".")] / counts[before.rstrip(".")] < 2


def test_replaced_words_are_as_frequent_as_those_that_gave_way():
    """Else a bag of words finds the odd sentences by single words. Within the bands here the counts differ by up to two."""
    entries = documentation(modules=120)
    bands = bands_of(entries)
    counts = Counter(word for sentence in sentences_of(entries, "train") for word in PLAIN_WORD.findall(sentence))
    pairs = [
        (counts[before.rstrip(".")], counts[after.rstrip(".")])
        for sentence in sentences_of(entries, "train")
        for before, after in zip(sentence.split(), bands.replace_words(sentence, NAME).split(), strict=True)
        if before != after
    ]
    gone, come = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    assert abs(come / gone - 1) < 0.04


def test_a_sentence_and_its_odd_twin_never_both_occur():
    entries = documentation()
    data, bands = TASK.build(entries), bands_of(entries)
    given = {example.text_a: example.label for part in (data.train, data.dev) for example in part}
    both = 0
    for sentence in sentences_of(entries, "train") | sentences_of(entries, "validation"):
        odd = bands.replace_words(sentence, NAME)
        assert not (sentence in given and odd in given)
        both += given.get(sentence) == 0 or given.get(odd) == 1
    assert both == len(given) == 260


def test_words_of_held_out_modules_are_never_put_in():
    entries = documentation()
    entries += [entry(f"north.held{n}", f"The basalt basalt basalt of {n} things is basalt again.", split="validation") for n in range(20)]
    assert "basalt" not in bands_of(entries).band


def test_names_and_first_words_stay():
    words = PLAIN_WORD.findall("Pass the_name, foo.bar and `quoted` to call() (or others), then stop.")
    assert words == ["and", "to", "or", "others", "then", "stop"]


def test_sentences_with_too_few_words_are_left_out():
    bands = FrequencyBands([Sentence("The alpha beta gamma delta epsilon.", None)] * 9)
    assert bands.replace_words("The alpha beta gamma delta epsilon.", NAME) is not None
    assert bands.replace_words("The alpha beta gamma delta.", NAME) is None  # too short
    assert bands.replace_words("The alpha Beta Gamma Delta Epsilon Zeta.", NAME) is None  # one word that can be replaced
