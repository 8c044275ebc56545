"""Sentence borders by rule, and what is a paragraph of running text.

Own code because no library among the core requirements splits sentences (NLTK, spaCy and pysbd would each be a further dependency,
with data files or a tenth of this speed).

A sentence ends after a run of . ! ? ... and the quotes and brackets that close behind it, if white space follows, unless
  - the next word begins in lower case ('"Stop!" he said'), or with punctuation that continues (", ; : )"),
  - the stop belongs to a title or a reference ("Dr. Who", "e.g. Paris", "No. 5"), to an initial ("J. R. Smith") or to the number of an
    item ("2. Methods" at the start),
  - it belongs to an abbreviation that may end a sentence ("Inc.", "U.S.", "etc.", "p.m.") and the next word is not one that commonly
    opens one ("The", "In", "He", ...).
The stops of unspaced and other scripts (Chinese, Japanese, Arabic, Urdu, Devanagari, Armenian, Ethiopic) need no white space behind them.
Decimals, URLs, version numbers and dotted names have no white space behind the stop, so they stay whole. Nothing but white space at borders
and around line breaks is lost or changed. Cost is linear in the length, whatever the text.
"""

from __future__ import annotations

import re

WRAPPED_WIDTH = 120
"""Lines no longer than this are taken for hard-wrapped running text, longer ones for a paragraph each."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEVER_END = _words("""
    mr mrs ms mx dr prof st mt ft gen col maj capt cpt cmdr lt sgt cpl adm rev hon pres gov sen rep supt messrs mme mlle sr fr
    e.g i.e eg ie cf viz vs approx resp incl al ca""")
_NOT_BEFORE_NUMBERS = _words("no nos fig figs eq eqs sec secs ch chap vol vols pp p pg art par para pt ed eds ver v ref refs tab §")
_MAY_END = _words("""
    inc ltd co corp bros jr esq etc ph.d dept univ assn bldg ave blvd rd est
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun""")
_OPENERS = _words("""
    a after again all although among an and another any are as at because before both but by can do does during each either even every
    few finally first for from furthermore have he her here his how however i if in indeed instead is it its just last later let like
    many meanwhile more moreover most my neither never next no none nor not nothing now of on once one only or other our over perhaps
    see several she should similarly since so some still such thanks that the their then there therefore these they this those though
    through thus to today two under unlike until was we were what when where whether which while who why will with without yes yet you
    your""")

_CLOSERS = "\"'”’»›)\\]}"
_FAR_CLOSERS = _CLOSERS + "」』）】〉》〗〕］｣"
# The lookbehind lets a match begin only at the start of a run of stops: without it a long run costs the square of its length.
_STOP = re.compile(
    rf"(?<![.!?…‽])[.!?…‽]++[{_CLOSERS}]*+(?=\s)"  # (stops, closers) before white space
    rf"|(?P<far>[。！？｡．؟۔।॥։።፧]++[{_FAR_CLOSERS}]*+)"
)
_NEXT = re.compile(r"""\s++["'“”‘’«‹„(\[{¿¡*_—–-]*+(?P<word>[^\W_]*+)""")
_CONTINUES = re.compile(r"\s*+[,;:)\]}]")


def split_sentences(paragraph: str) -> list[str]:
    """Split running text; line breaks in it are white space. Sentences come stripped, none is empty."""
    lines = paragraph.splitlines()
    text = " ".join(filter(None, map(str.strip, lines))) if len(lines) > 1 else paragraph
    sentences, start = [], 0
    for stop in _STOP.finditer(text):
        ends = not _CONTINUES.match(text, stop.end()) if stop["far"] else _ends(text, start, stop.start(), stop.end())
        if ends and (sentence := text[start : stop.end()].strip()):
            sentences.append(sentence)
            start = stop.end()
    if rest := text[start:].strip():
        sentences.append(rest)
    return sentences


def split_paragraphs(text: str) -> list[str]:
    """Split a document at blank lines and at those line breaks that end a paragraph.

    Where nine lines in ten are no longer than WRAPPED_WIDTH the text is hard-wrapped: a line break ends a paragraph if its line is shorter
    than 60 % of that length (a heading, the last line of a paragraph). Otherwise each line is a paragraph. A next line that begins in lower
    case always continues.
    """
    lines = [line.strip() for line in text.splitlines()]
    lengths = sorted(len(line) for line in lines if line)
    if not lengths:
        return []
    width = lengths[int(0.9 * len(lengths))]
    paragraphs: list[list[str]] = []
    before = ""
    for line in lines:
        if line:
            ended = not before or ((width > WRAPPED_WIDTH or len(before) < 0.6 * width) and not line[0].islower())
            if ended:
                paragraphs.append([])
            paragraphs[-1].append(line)
        before = line
    return [" ".join(paragraph) for paragraph in paragraphs]


def _ends(text: str, start: int, stop: int, end: int) -> bool:
    """Whether the stops at `stop`, closed at `end`, end the sentence that began at `start`."""
    following = _NEXT.match(text, end)
    word = following["word"]
    if word[:1].islower() or (not word and _CONTINUES.match(text, end)):
        return False
    if text[stop] != "." or text.startswith(".", stop + 1):  # "!", "?", "..."
        return True
    before = text[max(start, stop - 24) : stop]
    if not before or before[-1].isspace():
        return True
    token = before.split()[-1].lstrip("\"'“‘«([{*_—–-")
    key = token.lower()
    if key in _NEVER_END or (key in _NOT_BEFORE_NUMBERS and word[:1].isdigit()):
        return False
    if token.isdigit() and stop - start < 6 and text[start:stop].strip() == token:
        return False
    is_initial = len(token) == 1 and token.isupper()
    has_inner_stop = len(key) <= 7 and "." in key and all(len(part) == 1 and part.isalpha() for part in key.split("."))
    if is_initial or has_inner_stop or key in _MAY_END:
        return word.lower() in _OPENERS and not (is_initial and word.lower() in ("a", "i"))
    return True
