"""From records of any source to raw documents: cleaned, the empty ones skipped, a part held out.

NUL and the other control characters but tabs and line ends become spaces, halves of surrogate pairs (a JSON escape can spell one) the
replacement character U+FFFD: no tokenizer takes them. All else comes through as it is: joiners, direction marks, emoji, any script.

`found` counts along the way: train, validation, characters, empty, control, surrogates, cut, end.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mlm_lab.data.documents import TRAIN, VALIDATION, RawDocument, split_document
from mlm_lab.errors import UserError

LONGEST_TEXT = 8_000_000
"""Characters; a document without a border that grows beyond is cut at a line, so that a file without blank lines fits in memory."""

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NOTES = (
    ("empty", "{:,} empty documents were skipped"),
    ("control", "{:,} documents held control characters, now spaces"),
    ("surrogates", "{:,} documents held halves of surrogate pairs, now U+FFFD"),
    ("cut", f"{{:,}} pieces were cut from documents of more than {LONGEST_TEXT:,} characters, at line ends"),
    ("end", "there is a single document: its last {:,} sentences are held out"),
)


def clean(records: Iterable[tuple[str, str]], split: str, found: Counter[str]) -> Iterator[RawDocument]:
    """Raw documents of (text, source) pairs."""
    for text, source in records:
        if _CONTROL.search(text):
            found["control"] += 1
            text = _CONTROL.sub(" ", text)
        if _SURROGATE.search(text):
            found["surrogates"] += 1
            text = _SURROGATE.sub("\ufffd", text)
        if not text or text.isspace():
            found["empty"] += 1
            continue
        found["characters"] += len(text)
        yield RawDocument(text, source, split)


def hold_out(documents: Iterable[RawDocument], share: float, found: Counter[str]) -> Iterator[RawDocument]:
    """Give each document its side by a hash of its text: copies fall on the same side, whatever the order of the files.

    While all fall on one side, the one nearest to the other side is kept back, and goes there if none follows, so that of two documents or
    more each side gets one. Of a single document the last sentences are held out. Raises UserError where that is one sentence.
    """
    limit = share * 2**64
    kept, kept_distance, passed, are_mixed = None, 0.0, 0, False
    for raw in documents:
        code = int.from_bytes(hashlib.sha256(raw.text.encode()).digest()[:8])
        raw = replace(raw, split=VALIDATION if code < limit else TRAIN)
        are_mixed = are_mixed or (kept is not None and kept.split != raw.split)
        distance = abs(code - limit)
        if kept is not None and (are_mixed or distance < kept_distance):
            yield kept
            passed, kept = passed + 1, None
        if are_mixed or kept is not None:
            yield raw
            passed += 1
        else:
            kept, kept_distance = raw, distance
    if kept is not None and passed:
        yield replace(kept, split=TRAIN if kept.split == VALIDATION else VALIDATION)
    elif kept is not None:
        yield from _hold_out_end(kept, share, found)


def _hold_out_end(raw: RawDocument, share: float, found: Counter[str]) -> Iterator[RawDocument]:
    lines = split_document(raw).sentences
    if len(lines) < 2:
        raise UserError("the corpus is one sentence: nothing can be held out", where=raw.source, fix="add text")
    found["end"] = max(1, round(share * len(lines)))
    for split, part in ((TRAIN, lines[: -found["end"]]), (VALIDATION, lines[-found["end"] :])):
        yield RawDocument("\n".join(part), raw.source, split, lines_are_sentences=True)


def both_sides(documents: Iterable[RawDocument], found: Counter[str], where: str) -> Iterator[RawDocument]:
    """Count the documents as they pass. Raises UserError at the end if one side stayed empty."""
    for raw in documents:
        found[raw.split] += 1
        yield raw
    empty = [split for split in (TRAIN, VALIDATION) if not found[split]]
    if empty:
        raise UserError(f"no text for {' and '.join(empty)}", where=where, fix="more documents, or another validation part")


def describe(found: Counter[str], origin: str) -> list[str]:
    """Lines for people: what was found, then what was skipped or changed."""
    counts = f"{found[TRAIN] + found[VALIDATION]:,} documents, {found['characters']:,} characters from {origin}"
    return [f"{counts}; {found[VALIDATION]:,} documents are held out", *(note.format(found[key]) for key, note in _NOTES if found[key])]
