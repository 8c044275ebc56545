"""A document as GitHub's Markdown."""

from __future__ import annotations

import re

from mlm_lab.report.document import Block, Bullets, Document, Figure, Heading, Paragraph, Table, spans


def render(document: Document) -> str:
    """The text of report.md. Each block ends with an empty line."""
    return f"# {_inline(document.title)}\n\n" + "".join(f"{_block(block)}\n\n" for block in document.blocks).rstrip("\n") + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_inline(block.text)}"
        case Paragraph():
            return _inline(block.text)
        case Bullets():
            return "\n".join(f"- {_inline(item)}" for item in block.items)
        case Figure():
            return f"![{_plain(block.caption)}]({block.file})\n\n{_inline(block.caption)}"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    marks = ["---:" if table.at_right(i) else "---" for i in range(len(table.columns))]
    rows = [table.columns, marks, *table.rows]
    lines = [f"**{_inline(table.caption)}**", "", *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)]
    return "\n".join([*lines, *(["", _inline(table.note)] if table.note else [])])


def _cell(text: str) -> str:
    return _inline(text).replace("|", "\\|").replace("\n", " ")


def _inline(text: str) -> str:
    written = {"code": "`{}`", "strong": "**{}**"}
    return "".join(_escape(piece) if kind == "text" else written[kind].format(piece) for kind, piece in spans(text))


def _escape(text: str) -> str:
    """What Markdown would read as a mark: < and > as text, * and _ inside names, [ before ](."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("*", "\\*")
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text).replace("](", "]\\(")


def _plain(text: str) -> str:
    return "".join(piece for _, piece in spans(text)).replace("]", ")").replace("[", "(")
