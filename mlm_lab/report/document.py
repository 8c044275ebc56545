"""A document as blocks, so that the Markdown, the HTML and the LaTeX of a report cannot say different things.

Text is plain, with two marks: `code` and **strong**.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MARKS = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*")
_NUMBER = re.compile(r"(< )?[-+]?\d")


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Cells are text; a column after the first whose every cell is a number or a dash stands at the right, one of dashes alone too."""

    name: str
    """Short and unique: its label in LaTeX."""
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str | None = None

    def at_right(self, column: int) -> bool:
        cells = [row[column] for row in self.rows]
        return column > 0 and any(cells) and all(cell in ("-", "") or _NUMBER.match(cell) for cell in cells)


@dataclass(frozen=True)
class Figure:
    file: str
    """Name of the SVG, beside the report."""
    caption: str


Block = Heading | Paragraph | Bullets | Table | Figure


@dataclass(frozen=True)
class Document:
    title: str
    blocks: Sequence[Block]

    @property
    def tables(self) -> list[Table]:
        return [block for block in self.blocks if isinstance(block, Table)]


def spans(text: str) -> Iterator[tuple[str, str]]:
    """The text in pieces: ("text" | "code" | "strong", what it says)."""
    end = 0
    for found in _MARKS.finditer(text):
        if found.start() > end:
            yield "text", text[end : found.start()]
        yield ("code", found[1]) if found[1] else ("strong", found[2])
        end = found.end()
    if end < len(text):
        yield "text", text[end:]
