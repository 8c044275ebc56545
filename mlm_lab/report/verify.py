"""Whether report.md still says what results.csv and the run folders at hand give.

Two questions: does each row of results.csv hold what its run folder holds, and does the report, made again from the rows, read the same?
Differences are told line by line, with the numbers that changed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from mlm_lab.errors import UserError
from mlm_lab.keys import suggest
from mlm_lab.report import markdown, results
from mlm_lab.report.rows import Row
from mlm_lab.report.sections import compose_document
from mlm_lab.report.study import Places, Study, gather_known, read_study
from mlm_lab.report.write import REPORT, plan_figures

_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
_PLACED = ("arm", "tables")
"""Columns that the report itself fills in."""


def verify(name: str, places: Places, words: Mapping[str, str]) -> list[str]:
    """What differs, a line each; empty where every number is as it should be.

    Raises:
        UserError: there is no report yet; see also `read_study`.
    """
    file = places.folder / REPORT
    if not file.exists():
        others = places.studies()
        meant = "" if name in others else suggest(name, others)
        raise UserError(f"there is no report yet{meant}", where=str(file), fix=places.command(name, words))
    study = read_study(name, places, words, gather_known(name, places), again=True)
    drawn = {drawing.file: drawing.caption for drawing in plan_figures(study)}
    again = markdown.render(compose_document(study, drawn))
    recorded = {row["config_hash"]: row for row in results.read(places.folder / results.RESULTS)}
    return [*_row_differences(recorded, study), *_text_differences(file.read_text(encoding="utf-8"), again)]


def _row_differences(recorded: Mapping[str, Row], study: Study) -> Iterator[str]:
    """Each cell of results.csv against the run folder, where that is at hand."""
    for found in study.found.rows:
        name = found["config_hash"]
        row = recorded.get(name)
        if row is None:
            yield f"results.csv: run {name[:12]} is not in it; its folder is at hand"
            continue
        for column in sorted(found):
            if column not in _PLACED and row.get(column, "") != found[column]:
                yield f"results.csv, run {name[:12]}, {column}: {row.get(column) or 'nothing'}; its folder says {found[column]}"


def _text_differences(written: str, again: str) -> Iterator[str]:
    """The lines of report.md that are not what they should be."""
    old, new = written.splitlines(), again.splitlines()
    for kind, start, end, first, last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for offset in range(max(end - start, last - first)):
            was = old[start + offset] if start + offset < end else None
            is_now = new[first + offset] if first + offset < last else None
            yield f"report.md, line {min(start + offset, len(old)) + 1}: {_told(was, is_now)}"


def _told(was: str | None, is_now: str | None) -> str:
    if was is None or is_now is None:
        return f"too much: {was[:160]}" if is_now is None and was is not None else f"missing: {(is_now or '')[:160]}"
    numbers = (_NUMBER.findall(was), _NUMBER.findall(is_now))
    changed = [f"{before} should be {after}" for before, after in zip(*numbers, strict=False) if before != after]
    if len(numbers[0]) == len(numbers[1]) and changed:
        return f"{'; '.join(changed)} ({was.strip('| ')[:60]})"
    return f"{was[:120]!r} should be {is_now[:120]!r}"
