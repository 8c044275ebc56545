"""Entities from tags: the three schemes, ill-formed tags, and F1 (traps.md 32)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm_lab.evaluation.spans import Span, entity_scores, extract_spans, to_iob2

EXPECTED = [Span("PER", 1, 3), Span("PER", 3, 4), Span("LOC", 4, 5), Span("ORG", 6, 9)]
SCHEMES = {
    "IOB1": "O I-PER I-PER B-PER I-LOC O I-ORG I-ORG I-ORG",
    "IOB2": "O B-PER I-PER B-PER B-LOC O B-ORG I-ORG I-ORG",
    "IOBES": "O B-PER E-PER S-PER S-LOC O B-ORG I-ORG E-ORG",
    "BILOU": "O B-PER L-PER U-PER U-LOC O B-ORG I-ORG L-ORG",
    "BMES": "O B-PER E-PER S-PER S-LOC O B-ORG M-ORG E-ORG",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_trap_32_every_scheme_is_read_right(scheme):
    tags = SCHEMES[scheme].split()
    assert extract_spans(tags) == EXPECTED
    assert to_iob2(tags) == tuple(SCHEMES["IOB2"].split())


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("I-PER I-LOC", [Span("PER", 0, 1), Span("LOC", 1, 2)]),
        ("B-PER I-LOC I-LOC", [Span("PER", 0, 1), Span("LOC", 1, 3)]),
        ("E-PER E-PER", [Span("PER", 0, 1), Span("PER", 1, 2)]),
        ("S-PER I-PER", [Span("PER", 0, 1), Span("PER", 1, 2)]),
        ("B-PER S-PER", [Span("PER", 0, 1), Span("PER", 1, 2)]),
        ("B-PER U-PER", [Span("PER", 0, 1), Span("PER", 1, 2)]),
        ("B-creative-work I-creative-work", [Span("creative-work", 0, 2)]),
        ("O O", []),
        ("B-PER", [Span("PER", 0, 1)]),
    ],
)
def test_ill_formed_tags_count_as_in_conlleval(tags, spans):
    assert extract_spans(tags.split()) == spans


def test_a_word_that_was_cut_off_ends_an_entity_and_is_missed():
    """traps.md 32: an entity behind the cut lowers recall, not precision."""
    gold = ["B-PER", "I-PER", "O", "B-LOC"]
    scores = entity_scores([gold, gold], [["B-PER", "I-PER", "O", ""], ["B-PER", "", "", ""]])
    assert scores == {"f1": pytest.approx(2 * 1 / 6), "precision": 0.5, "recall": 0.25}


def test_f1_by_hand():
    gold = [["B-PER", "I-PER", "O"], ["B-LOC", "B-LOC"]]
    predicted = [["B-PER", "O", "O"], ["B-LOC", "B-ORG"]]  # one right of three found, of three there
    assert entity_scores(gold, predicted) == {"f1": pytest.approx(1 / 3), "precision": pytest.approx(1 / 3), "recall": pytest.approx(1 / 3)}
    assert entity_scores([["O"]], [["O"]]) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}


@st.composite
def entities(draw) -> tuple[int, list[Span]]:
    length = draw(st.integers(1, 12))
    spans, position = [], 0
    while position < length:
        position += draw(st.integers(0, 2))
        stop = min(length, position + draw(st.integers(1, 3)))
        if position < stop:
            spans.append(Span(draw(st.sampled_from(["PER", "LOC", "a-b"])), position, stop))
        position = stop
    return length, spans


def write_iob1(length: int, spans: list[Span]) -> list[str]:
    tags = ["O"] * length
    for before, span in zip([None, *spans], spans, strict=False):
        tags[span.start : span.stop] = [f"I-{span.type}"] * (span.stop - span.start)
        if before is not None and before.type == span.type and before.stop == span.start:
            tags[span.start] = f"B-{span.type}"
    return tags


def write_iobes(length: int, spans: list[Span]) -> list[str]:
    tags = ["O"] * length
    for type_, start, stop in spans:
        tags[start:stop] = [f"B-{type_}", *[f"I-{type_}"] * (stop - start - 2), f"E-{type_}"] if stop - start > 1 else [f"S-{type_}"]
    return tags


@given(entities())
def test_spans_survive_every_scheme(case):
    length, spans = case
    for write in (write_iob1, write_iobes):
        tags = write(length, spans)
        assert extract_spans(tags) == spans
        assert extract_spans(to_iob2(tags)) == spans


TAGS = st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"])


@settings(deadline=None)  # seqeval imports scikit-learn
@given(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=20))
def test_iob2_scores_agree_with_seqeval(pairs):
    seqeval = pytest.importorskip("seqeval.metrics")
    gold, predicted = ([[pair[side] for pair in pairs]] for side in (0, 1))
    scores = entity_scores(gold, predicted)
    for name, function in (("f1", seqeval.f1_score), ("precision", seqeval.precision_score), ("recall", seqeval.recall_score)):
        assert scores[name] == pytest.approx(function(gold, predicted, zero_division=0))
