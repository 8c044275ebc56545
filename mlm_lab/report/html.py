"""A document as one HTML file that needs nothing else: no font, no network; the SVG figures stand in it.

Its only script sorts a table by the column whose head is clicked (or entered): rising, falling, as it was. It reads the cells' text and
moves rows; without it the page says the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from mlm_lab.report.document import Block, Bullets, Document, Figure, Heading, Paragraph, Table, spans

_STYLE = """
:root { color-scheme: light; --ink: #1c1c1a; --soft: #5c5c57; --line: #d9d7d0; --paper: #ffffff; --tint: #f3f2ec; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 Georgia, "Times New Roman", serif; }
main { max-width: 80rem; margin: 0 auto; padding: 2.5rem 1.5rem 5rem; }
h1, h2, h3, table, figcaption, .note, .caption { font-family: system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p, ul { max-width: 46rem; margin: 0 0 1rem; }
li { margin: .2rem 0; }
code { font: .88em/1 ui-monospace, "DejaVu Sans Mono", monospace; background: var(--tint); padding: .08em .3em; border-radius: 3px; }
.table { overflow-x: auto; margin: 0 0 .5rem; }
table { border-collapse: collapse; font-size: .875rem; line-height: 1.35; font-variant-numeric: tabular-nums; }
.caption { max-width: 60rem; font-size: .875rem; font-weight: 600; margin: 1.25rem 0 .45rem; }
th, td { padding: .32rem .8rem .32rem 0; text-align: left; vertical-align: top; }
th { border-bottom: 1.5px solid var(--ink); font-weight: 600; vertical-align: bottom; }
th[aria-sort] { cursor: pointer; }
th[aria-sort]:hover, th[aria-sort]:focus-visible { background: var(--tint); outline: none; }
th[aria-sort="ascending"]::after { content: " \\2191"; }
th[aria-sort="descending"]::after { content: " \\2193"; }
td { border-bottom: 1px solid var(--line); }
.w { min-width: 13rem; }
.r { text-align: right; white-space: nowrap; }
.note { color: var(--soft); font-size: .82rem; max-width: 60rem; margin: 0 0 1.5rem; }
figure { margin: 1.5rem 0 2rem; }
figure svg { max-width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: .85rem; max-width: 46rem; margin-top: .4rem; }
@media print { main { padding: 0; max-width: none; } h2 { break-after: avoid; } table, figure { break-inside: avoid; } }
"""

_SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], written = [...body.rows];
  if (written.length < 2) continue;
  const number = text => parseFloat(text.replace(/^[<>\\u2248\\s]+/, "").replace(/,/g, "").replace("\\u2212", "-"));
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.setAttribute("aria-sort", "none");
    const value = row => row.cells[column].textContent.trim();
    const sort = () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
      heads.forEach(other => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", next);
      const rows = [...written], sign = next === "descending" ? -1 : 1;
      if (next !== "none") rows.sort((one, other) => {
        const [a, b] = [value(one), value(other)], [x, y] = [number(a), number(b)];
        if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
        return sign * (isNaN(x) ? a.localeCompare(b) : x - y);
      });
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
}
"""

_SENTENCE = 28
"""Letters from which a cell is a sentence."""


def render(document: Document, figures: Mapping[str, str]) -> str:
    """The text of report.html. figures: name of each SVG -> its text."""
    blocks = "\n".join(_block(block, figures, number) for number, block in enumerate(document.blocks))
    title = escape("".join(piece for _, piece in spans(document.title)))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{_inline(document.title)}</h1>\n"
        f"{blocks}\n</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _block(block: Block, figures: Mapping[str, str], number: int) -> str:
    match block:
        case Heading():
            return f"<h{block.level}>{_inline(block.text)}</h{block.level}>"
        case Paragraph():
            return f"<p>{_inline(block.text)}</p>"
        case Bullets():
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in block.items) + "</ul>"
        case Figure():
            drawing = _embed(figures[block.file], f"f{number}-")
            return f"<figure>{drawing}<figcaption>{_inline(block.caption)}</figcaption></figure>"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    kinds = [_kind(table, i) for i in range(len(table.columns))]
    head = "".join(f"<th{kind}>{_inline(column)}</th>" for kind, column in zip(kinds, table.columns, strict=True))
    rows = ("".join(f"<td{kind}>{_inline(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) for row in table.rows)
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    note = f'<p class="note">{_inline(table.note)}</p>' if table.note else ""
    caption = f'<p class="caption">{_inline(table.caption)}</p>'
    return f'{caption}<div class="table"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>{note}'


def _kind(table: Table, column: int) -> str:
    """Numbers stand at the right in one line; sentences get room."""
    if table.at_right(column):
        return ' class="r"'
    return ' class="w"' if any(len(row[column]) > _SENTENCE for row in table.rows) else ""


def _embed(svg: str, prefix: str) -> str:
    """The drawing without its XML prologue, its ids its own: two drawings of one page may have the same ones."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(href=")#', rf"\1#{prefix}", svg)
    return re.sub(r"url\(#", f"url(#{prefix}", svg).strip()


def _inline(text: str) -> str:
    marks = {"text": "{}", "code": "<code>{}</code>", "strong": "<strong>{}</strong>"}
    return "".join(marks[kind].format(escape(piece, quote=False)) for kind, piece in spans(text))
