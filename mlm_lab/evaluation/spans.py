"""Entities from tags, and entity-level F1 (conlleval's rules; Tjong Kim Sang & De Meulder 2003).

One rule reads IOB1, IOB2 and IOBES (and BILOU, BMES): an entity starts where the prefix says so, or where a tag continues what is not
open; it ends where the prefix says so, or where the next tag does not continue it. So ill-formed predictions count as they do in conlleval.
Own code: torchmetrics scores tags and not entities, and seqeval is no core requirement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
PREFIXED = re.compile(r"([BIESLUMW])-(.+)", re.DOTALL)
STARTS = frozenset("BSUW")
ENDS = frozenset("ESLUW")


class Span(NamedTuple):
    """Words [start, stop) of one type."""

    type: str
    start: int
    stop: int


def is_prefixed(tag: str) -> bool:
    """Whether a tag is of the family read here: O, or a position letter, a hyphen and a type."""
    return tag == OUTSIDE or PREFIXED.fullmatch(tag) is not None


def extract_spans(tags: Sequence[str]) -> list[Span]:
    """The entities of one sentence, in order. A tag without a known prefix is outside."""
    spans: list[Span] = []
    open_type, start, closes = None, 0, False
    for position, tag in enumerate(tags):
        match = PREFIXED.fullmatch(tag)
        prefix, type_ = match.groups() if match else (OUTSIDE, None)
        continues = open_type is not None and type_ == open_type and prefix not in STARTS and not closes
        if not continues:
            if open_type is not None:
                spans.append(Span(open_type, start, position))
            open_type, start = type_, position
        closes = prefix in ENDS
    if open_type is not None:
        spans.append(Span(open_type, start, len(tags)))
    return spans


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """The same entities with B- on every first word and I- on the others."""
    result = [OUTSIDE] * len(tags)
    for type_, start, stop in extract_spans(tags):
        result[start:stop] = [f"B-{type_}"] + [f"I-{type_}"] * (stop - start - 1)
    return tuple(result)


def entity_scores(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> dict[str, float]:
    """Micro-averaged precision, recall and F1 over entities: one counts where type and both borders agree.

    Where nothing is predicted, or nothing is there to find, the undefined ratio is 0, as in conlleval.
    """
    found = right = there = 0
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_spans, predicted_spans = set(extract_spans(gold_tags)), set(extract_spans(predicted_tags))
        there += len(gold_spans)
        found += len(predicted_spans)
        right += len(gold_spans & predicted_spans)
    precision, recall = right / found if found else 0.0, right / there if there else 0.0
    return {"f1": 2 * right / (found + there) if found + there else 0.0, "precision": precision, "recall": recall}
