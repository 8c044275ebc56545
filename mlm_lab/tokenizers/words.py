"""Where words begin, for what masks or counts whole words: `tokenizer.words`.

own      as the tokenizer splits before it makes pieces: at white space and punctuation; each Chinese character is a word
spaces   at white space alone: for a corpus that comes in words (Chinese that was segmented before)
unicode  by the Unicode rules (Standard Annex 29: a combining mark stays with its letter, "can't" and "3.14" are whole, Hebrew and Arabic
         letters stay together), and by ICU's dictionaries where a script has no spaces: Chinese, Japanese, Thai, Lao, Khmer, Burmese.
         The library is ICU itself, through icu4py
jieba    Chinese words by jieba (its dictionary, and its model for words that are not in it)

    text -> where each word begins, in characters of the text -> first token of each word

Pieces stay what they are: only which of them belong together is said here. A piece that reaches over a border belongs to the word in which
it begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mlm_lab.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Encoding

OWN = "own"
PACKAGES = {"unicode": ("icu4py", "unicode"), "jieba": ("jieba", "zh")}
"""What a way needs: a package, and our extra that installs it."""
WAYS = (OWN, "spaces", *PACKAGES)
_SPACED = re.compile(r"\s*\S+")


def settle(way: str) -> str:
    """The way with the version of its package, since another version may find other words: "jieba 0.42.1".

    Raises UserError where the package is not installed.
    """
    from importlib.metadata import PackageNotFoundError, version

    if way not in PACKAGES:
        return way
    package, extra = PACKAGES[way]
    try:
        return f"{way} {version(package)}"
    except PackageNotFoundError:
        raise UserError(
            f"tokenizer.words={way} needs {package}, which is not installed", fix=f"pip install 'mlm_lab[{extra}]', or tokenizer.words=own"
        ) from None


def first_tokens(way: str, texts: Sequence[str], encodings: Sequence[Encoding]) -> np.ndarray:
    """(T,) bool, over the tokens of all texts end to end: the first of each word. way: as `settle` gives it."""
    return first_of_words(_finder(way.partition(" ")[0]), texts, encodings)


def first_of_words(find: Callable[[str], Iterator[int]], texts: Sequence[str], encodings: Sequence[Encoding]) -> np.ndarray:
    """(T,) bool: likewise. find: text -> where each word begins, the white space before it being the word's."""
    found = []
    for text, encoding in zip(texts, encodings, strict=True):
        begins = np.fromiter((begin for begin, _ in encoding.offsets), dtype=np.int64, count=len(encoding))
        word = np.searchsorted(np.fromiter(find(text), dtype=np.int64), begins, side="right")  # how many words have begun by then
        starts = np.ones(len(begins), dtype=bool)
        starts[1:] = word[1:] != word[:-1]
        found.append(starts)
    return np.concatenate(found) if found else np.ones(0, dtype=bool)


@cache
def _finder(way: str) -> Callable[[str], Iterator[int]]:
    """Text -> where each word begins. White space before a word is the word's: some pieces carry it."""
    return {"spaces": _by_spaces, "unicode": _by_unicode, "jieba": _by_jieba}[way]


def _by_spaces(text: str) -> Iterator[int]:
    return (match.start() for match in _SPACED.finditer(text))


def _by_unicode(text: str) -> Iterator[int]:
    from icu4py.breakers import WordBreaker

    return _without_spaces(WordBreaker(text, "root"))  # its own offsets count UTF-16 units


def _by_jieba(text: str) -> Iterator[int]:
    return _without_spaces(_jieba().cut(text))


@cache
def _jieba() -> Any:
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its old source
        import jieba
    jieba.setLogLevel(logging.WARNING)
    return jieba.Tokenizer()


def _without_spaces(segments: Iterable[str]) -> Iterator[int]:
    """Segments of a text end to end -> where those begin that are no white space, with what white space is before them."""
    begin, place = None, 0
    for segment in segments:
        begin = place if begin is None else begin
        if not segment.isspace():
            yield begin
            begin = None
        place += len(segment)
