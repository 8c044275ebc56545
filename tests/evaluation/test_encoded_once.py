"""The same examples are encoded once, and come back from the disk as they were."""

from __future__ import annotations

import numpy as np
import pytest

from mlm_lab.evaluation import encode as encoding
from mlm_lab.evaluation.encode import encode
from mlm_lab.evaluation.encoded_once import encoded_once
from mlm_lab.evaluation.task import SequenceExample, TaggedExample, TaskData

TEXTS = [SequenceExample("the film is good", "anna", 1), SequenceExample("bad", None, 0), SequenceExample("x" * 40, None, 1)]
WORDS = ("anna", "is", "in", "berlin")
DOCUMENT = (WORDS, ("good",))
TAGS = [TaggedExample(WORDS, ("B-PER", "O", "O", "B-LOC"), DOCUMENT, 0), TaggedExample(("good",), ("O",), DOCUMENT, 1)]
KINDS = {
    "classification": TaskData("classification", ("0", "1"), TEXTS, TEXTS),
    "regression": TaskData("regression", (), [e._replace(label=e.label + 0.5) for e in TEXTS], TEXTS),
    "tagging": TaskData("tagging", ("B-LOC", "B-PER", "O"), TAGS, TAGS),
}


@pytest.fixture
def encoded(monkeypatch) -> list:
    """What is encoded anew."""
    done = []
    for name in ("encode_texts", "encode_words"):
        original = getattr(encoding, name)
        monkeypatch.setattr(
            encoding, name, lambda examples, *rest, original=original: done.append(len(examples)) or original(examples, *rest)
        )
    return done


@pytest.mark.parametrize("kind", KINDS)
def test_it_comes_back_as_it_was(kind, tokenizer, tmp_path, encoded) -> None:
    data = KINDS[kind]
    fresh = encode(data, data.train, tokenizer, 16)
    with encoded_once(tmp_path):
        first, again = encode(data, data.train, tokenizer, 16), encode(data, data.train, tokenizer, 16)
    assert encoded == [len(data.train)] * 2  # outside of the block, and once inside
    indices = np.arange(len(data.train))
    for part in (first, again):
        assert (part.truncated, part.lost_words, len(part)) == (fresh.truncated, fresh.lost_words, len(fresh))
        assert part.labels[0].dtype == fresh.labels[0].dtype
        for name, array in fresh.batch(indices, 0).items():
            assert array.dtype == part.batch(indices, 0)[name].dtype
            np.testing.assert_array_equal(array, part.batch(indices, 0)[name])


def test_other_examples_lengths_labels_and_tokenizers_are_others(tokenizer, tmp_path, encoded) -> None:
    data, tagged = KINDS["classification"], KINDS["tagging"]
    with encoded_once(tmp_path):
        encode(data, data.train, tokenizer, 16)
        encode(data, data.train[:2], tokenizer, 16)
        encode(data, data.train, tokenizer, 12)
        encode(tagged, tagged.train, tokenizer, 16)
        encode(TaskData("tagging", ("O", "B-PER", "B-LOC"), TAGS, TAGS), TAGS, tokenizer, 16)
    assert len(encoded) == 5
    assert len(list((tmp_path / "encoded").glob("*.npz"))) == 5
