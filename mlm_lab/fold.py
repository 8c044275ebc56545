"""A text of aligned columns at the width of the terminal: what does not fit goes on below the last column, not at the left edge."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap

LEAST = 16
"""Columns that a description keeps: where the names leave less, it goes on at a small indent."""
DESCRIPTION = re.compile(r"^ *\S.*? {2,}(?=\S)")
"""What stands before the last column of a line: an indent, a name and the gap behind it."""


def terminal_width() -> int | None:
    """Columns of the terminal (COLUMNS before what it says itself), or None where stdout is none: in a pipe a line stays whole for grep."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fold(text: str, width: int | None) -> str:
    """The text with every line at most `width` columns wide, single words that are longer aside. width: None leaves it as it is."""
    if width is None:
        return text
    return "\n".join(_fold_line(line, width) for line in text.split("\n"))


def _fold_line(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    found = DESCRIPTION.match(line)
    margin = len(line) - len(line.lstrip())
    indent = found.end() if found and width - found.end() >= LEAST else margin if margin > 8 else margin + 4
    first = found.group() if found else " " * margin
    if len(first) + LEAST > width:  # a name so long that its description has no room beside it
        first, line = " " * margin, line.strip()
        line = re.sub(r" {2,}", "  ", line)
    else:
        line = line[len(first) :]
    return textwrap.fill(line, width, initial_indent=first, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
