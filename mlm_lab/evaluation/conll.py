"""CoNLL columns: a word a line, its tag in the last column or another one, a blank line between sentences."""

from __future__ import annotations

import re
from pathlib import Path

from mlm_lab.errors import UserError
from mlm_lab.evaluation.files import read_lines, unknown_label
from mlm_lab.evaluation.spans import OUTSIDE, is_prefixed, to_iob2
from mlm_lab.evaluation.task import TaggedExample

DOCUMENT_START = "-DOCSTART-"


def read_conll(
    path: Path, word_prefix: str = "", plain_tags: bool = False, documents: bool = False, column: int | None = None
) -> list[TaggedExample]:
    """The sentences of a file; tags come out as IOB2 whatever they were.

    Columns are separated by tabs where a line has one, else by spaces: words may hold other white space. -DOCSTART- lines are borders of
    sentences and documents, and no words.

    Args:
        path: plain or .gz.
        word_prefix: taken off the front of every word (WikiANN writes "en:word").
        plain_tags: also accept tags that are plain classes ("NOUN"), if none of the file has a prefix.
        column: where the tags are, from 1, the words' column; None: the last one.
        documents: give each sentence its document; a file without -DOCSTART- lines has none, and its sentences stay alone.

    Raises:
        UserError: another number of columns than the first line has, a tag that is none, or no sentence at all.
    """
    sentences, words, tags, lines = [], [], [], []
    borders: list[int] = []
    columns = None
    for number, line in read_lines(path):
        line = line.strip(" \t")
        fields = line.split("\t") if "\t" in line else re.split(" +", line)
        if line and fields[0] != DOCUMENT_START:
            columns = columns or len(fields)
            if len(fields) != columns or columns < 2:
                expected = f"{columns}, as in the lines before" if columns > 1 else "at least 2: word and tag"
                raise UserError(
                    "a line has the wrong number of columns",
                    where=f"{path}, line {number}",
                    given=f"{len(fields)}: {line[:60]}",
                    allowed=expected,
                )
            words.append(fields[0].removeprefix(word_prefix))
            if column is not None and column > columns:
                raise UserError(
                    "the file has no such column", where=f"{path}, line {number}", given=f"column {column} of {columns}: {line[:60]}"
                )
            tags.append(fields[-1 if column is None else column - 1])
            lines.append(number)
        elif words:
            sentences.append((words, tags, lines))
            words, tags, lines = [], [], []
        if fields[0] == DOCUMENT_START:
            borders.append(len(sentences))
    if words:
        sentences.append((words, tags, lines))
    if not sentences:
        raise UserError("the file has no sentences", where=str(path))
    examples = _with_iob2(path, sentences, plain_tags)
    return _with_documents(examples, borders) if documents and borders else examples


def _with_iob2(path: Path, sentences: list, plain_tags: bool) -> list[TaggedExample]:
    if plain_tags and not any(is_prefixed(tag) and tag != OUTSIDE for _, tags, _ in sentences for tag in tags):
        return [TaggedExample(tuple(words), tuple(tags)) for words, tags, _ in sentences]
    for _, tags, lines in sentences:
        for tag, number in zip(tags, lines, strict=True):
            if not is_prefixed(tag):
                raise unknown_label(path, number, tag, ["O, or B- I- E- S- and a type"])
    return [TaggedExample(tuple(words), to_iob2(tags)) for words, tags, _ in sentences]


def _with_documents(examples: list[TaggedExample], borders: list[int]) -> list[TaggedExample]:
    """borders: the sentences before which a document starts; what stands before the first one is a document too."""
    result = []
    for start, stop in zip([0, *borders], [*borders, len(examples)], strict=True):
        document = tuple(example.words for example in examples[start:stop])
        result += [example._replace(document=document, place=place) for place, example in enumerate(examples[start:stop])]
    return result


def label_names(*parts: list[TaggedExample]) -> tuple[str, ...]:
    """Every tag of the parts, sorted; with both prefixes of every type, so that any IOB2 sequence can be predicted; O first."""
    tags = {tag for part in parts for example in part for tag in example.tags}
    tags |= {f"{prefix}-{tag[2:]}" for tag in tags if tag != OUTSIDE and is_prefixed(tag) for prefix in "BI"}
    return tuple(sorted(tags, key=lambda tag: (tag != OUTSIDE, tag)))
