from __future__ import annotations

import random

from mlm_lab.data.duplicates import Duplicates, signature


def words(count: int, seed: int) -> list[str]:
    return [f"word{random.Random(seed * 1000 + i).randrange(5000)}" for i in range(count)]


def test_near_copies_are_seen_and_others_are_not() -> None:
    """One word of two hundred changed leaves a shingle overlap of .97: found with a probability above .98 each."""
    missed = mistaken = 0
    for seed in range(100):
        seen = Duplicates()
        text = words(200, seed)
        assert not seen.is_document_seen(" ".join(text))
        assert seen.is_document_seen(" ".join(text).upper())
        mistaken += seen.is_document_seen(" ".join(words(200, seed + 5000)))
        missed += not seen.is_document_seen(" ".join([*text[:100], "changed", *text[101:]]))
    assert missed <= 8
    assert mistaken == 0


def test_short_documents_are_left_to_the_sentences() -> None:
    seen = Duplicates()
    assert signature("Return the name of it.") == []
    assert not seen.is_document_seen("Return the name.") and not seen.is_document_seen("Return the name.")
    assert seen.new_sentences(["Return the name.", "Return the name.", "Return a name."]) == ["Return the name.", "Return a name."]
    assert seen.new_sentences(["Return a name."]) == []
    assert (seen.documents, seen.sentences) == (0, 2)
