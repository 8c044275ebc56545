"""The tables of a document as LaTeX, for a paper: booktabs, one table environment each, nothing to edit."""

from __future__ import annotations

from collections.abc import Sequence

from mlm_lab.report.document import Document, Table, spans

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≈": r"$\approx$",
    "|": r"\textbar{}",
    "<": "$<$",
    ">": "$>$",
    "√": r"$\surd$",
    "·": r"$\cdot$",
}
_MARKS = {"text": "{}", "code": r"\texttt{{{}}}", "strong": r"\textbf{{{}}}"}
_HEAD = r"""% Tables of the report {name}. Needs \usepackage{{booktabs}}; wide ones \usepackage{{graphicx}} for \resizebox.
"""


def render(document: Document, name: str) -> str:
    """The text of tables.tex."""
    return "\n".join([_HEAD.format(name=_escape(name)), *(_table(table, name) for table in document.tables)])


def _table(table: Table, name: str) -> str:
    columns = "".join("r" if table.at_right(i) else "l" for i in range(len(table.columns)))
    lines = [_row(row) for row in table.rows]
    caption = table.caption.rstrip(".") + "." + (f" {table.note}" if table.note else "")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_inline(caption)}}}",
            rf"\label{{tab:{name}-{table.name}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _row(table.columns),
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    """A row that begins with a bracket or a star would be read as an option of the end of the row before it."""
    text = " & ".join(map(_inline, cells)) + r" \\"
    return "{}" + text if text.startswith(("[", "*")) else text


def _inline(text: str) -> str:
    return "".join(_MARKS[kind].format(_escape(piece)) for kind, piece in spans(text))


def _escape(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)
