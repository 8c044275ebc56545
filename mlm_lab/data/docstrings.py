"""A docstring as prose: code, doctests, tables and markup taken out, what remains as sentences.

Knows reStructuredText (directives, roles, field lists, literal blocks), the Google and NumPy section styles and the Markdown that occurs
in docstrings. It is a reading aid, not a parser: what still looks like code is dropped a sentence at a time by `reads_as_prose`.
"""

from __future__ import annotations

import re

from mlm_lab.data.sentences import split_sentences

LONGEST_SENTENCE = 800
"""Characters; longer ones are tables and lists run together."""

_DIRECTIVE = re.compile(r"\.\.\s+(?P<name>[\w:-]+?)::\s*(?P<text>.*)")
_PROSE_DIRECTIVES = frozenset(("note", "warning", "seealso", "tip", "important", "caution", "hint", "attention", "admonition", "danger"))
_VERSION_DIRECTIVES = frozenset(("versionadded", "versionchanged", "deprecated", "deprecated-removed", "versionremoved"))
_UNDERLINE = re.compile(r"([^\w\s])\1{2,}")
_TABLE = re.compile(r"\+[-=+]{2,}|\||={2,}(\s+={2,})+|-{2,}(\s+-{2,})+")
_FIELD = re.compile(r"[:@](?P<name>[a-zA-Z]+)(?:\s[^:]*)?:(?:\s+(?P<text>.*))?$")
_TYPE_FIELDS = frozenset(("type", "rtype", "vartype", "license", "copyright", "author", "meta"))
_SECTION = re.compile(r"[A-Z][a-z]+(?: [A-Za-z]+)?\s*:{1,2}")
_GOOGLE_ITEM = re.compile(r"\*{0,2}`{0,2}\w[\w.]*`{0,2}(?:,\s*\*{0,2}\w+)*\s*(?:[(\[].*?[)\]])?\s*:\s+(?P<text>\S.*)")
_NUMPY_ITEM = re.compile(r"\*{0,2}`{0,2}\w[\w.]*`{0,2}(?:,\s*\*{0,2}\w+)*\s+:(?:\s|$)")
_TYPED_ITEM = re.compile(r"\*{0,2}`{0,2}\w+`{0,2}\s*\(.*?\)\s*:(?:\s+(?P<text>\S.*))?$")
_BULLET = re.compile(r"(?:[-*+•·]|\[\d+\]|\(?\d{1,2}[.)]|\(?[a-z]\)|#\.)\s+(?P<text>\S.*)")

_MARKUP = (
    (re.compile(r"(?::[\w:+.-]+:)?`~(?:\w+\.)*([^`<]+)`"), r"\1"),  # :class:`~a.b.C` reads as C
    (re.compile(r"(?::[\w:+.-]+:)?`([^`<]+?)\s*<[^>`]*>`_{0,2}"), r"\1"),  # `text <target>`_
    (re.compile(r":[\w:+.-]+:`!?([^`]+)`"), r"\1"),
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"`([^`]+)`_{0,2}"), r"\1"),
    (re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*(\w(?:[^*]*\w)?)\*(?![\w*])"), r"\1"),
    (re.compile(r"\s*\[[\w#]+\]_"), ""),
    (re.compile(r"(?<!\w)!?\[([^\]]+)\](?:\([^)\s]*\)|\[[^\]]*\])"), r"\1"),  # [text](target), [text][target]
)
_CODE = re.compile(
    r"[{}\\|$^`]|://|>>>|[=!<>:+]=|=[=>]|\s=\s|->|<<|::|\w=\S|\w\(.*\)\.\w|\)\(|^[@#%<>=+/-]"
    r"|^(?:import \w|from [\w.]+ import |def \w+\(|class \w+[(:]|return \w+[(.\[]|print\(|assert |raise \w+\()"
    r"|^(?:async )?(?:if|for|while|with|def) .*:$"
)
_WORD = re.compile(r"(?<!\S)[^\w\s]*[^\W\d_]{2,}")


def prose(docstring: str) -> list[str]:
    """The sentences of a docstring (already dedented) that read as prose, in order."""
    sentences = (sentence for paragraph in paragraphs(docstring) for sentence in split_sentences(_plain(paragraph)))
    return [sentence for sentence in sentences if reads_as_prose(sentence)]


def reads_as_prose(sentence: str) -> bool:
    """At least three words, mostly letters, no operators, calls or URLs."""
    if not 12 <= len(sentence) <= LONGEST_SENTENCE or _CODE.search(sentence):
        return False
    letters = sum(map(str.isalpha, sentence)) + sentence.count(" ")
    return letters >= 0.8 * len(sentence) and len(_WORD.findall(sentence)) >= 3


def paragraphs(docstring: str) -> list[str]:
    """Running text between blank lines, bullets, fields and changes of indent; blocks of code, doctests and tables left out."""
    found: list[list[str]] = [[]]
    block_indent = item_indent = None  # inside a block that ends at this indent; the indent of a section's items
    until_blank, fence, in_section, hanging, previous = False, "", False, False, 0
    for line in docstring.expandtabs().splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if fence:
            fence = "" if text.startswith(fence) else fence
            continue
        if not text:
            until_blank = hanging = False
            found.append([])
            continue
        if until_blank or (block_indent is not None and indent > block_indent):
            continue
        block_indent = None
        is_item = in_section and (item_indent is None or indent <= item_indent)
        if text.startswith(("```", "~~~")) and len(text) < 20:
            fence = text[:3]
            found.append([])
        elif text.startswith((">>>", "...")) or _TABLE.match(text):
            until_blank = True
            found.append([])
        elif text.startswith(".. ") or text == "..":
            kept = _directive_text(text)
            block_indent, hanging = (indent if kept is None else None), True
            found.append([kept or ""])
        elif _UNDERLINE.fullmatch(text):
            if len(found[-1]) == 1:  # the heading above
                found[-1].clear()
            in_section, item_indent = True, None
            found.append([])
        elif field := _FIELD.match(text):
            block_indent, hanging = (indent if field["name"] in _TYPE_FIELDS else None), True
            found.append([(field["text"] or "") if block_indent is None else ""])
        elif _SECTION.fullmatch(text):
            block_indent = indent if text.endswith("::") else None
            in_section, item_indent = True, None
            found.append([])
        elif _NUMPY_ITEM.match(text):
            item_indent = indent
            found.append([])
        elif item := (is_item and _GOOGLE_ITEM.match(text)) or _TYPED_ITEM.match(text):
            item_indent, hanging = indent, True
            found.append([item["text"] or ""])
        elif bullet := _BULLET.match(text):
            hanging = True
            item = _TYPED_ITEM.match(bullet["text"])
            found.append([(item["text"] or "") if item else bullet["text"]])
        else:
            if indent != previous and not hanging:
                found.append([])
            hanging = False
            if text.endswith("::"):
                block_indent = indent
                text = text.rstrip(" :") + ":" if text.strip(": ") else ""
            found[-1].append(text)
        previous = indent
    return [" ".join(filter(None, lines)) for lines in found if any(lines)]


def _directive_text(text: str) -> str | None:
    """What a directive's first line adds to the prose; None where the directive's block is left out with it."""
    directive = _DIRECTIVE.match(text)
    if directive and directive["name"] in _PROSE_DIRECTIVES:
        return directive["text"]
    if directive and directive["name"] in _VERSION_DIRECTIVES:
        return directive["text"].partition(" ")[2]
    return None


def _plain(paragraph: str) -> str:
    """Inline markup taken off, its words kept."""
    if any(mark in paragraph for mark in "`*[_"):
        for pattern, replacement in _MARKUP:
            paragraph = pattern.sub(replacement, paragraph)
    return " ".join(paragraph.split())
