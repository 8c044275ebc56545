"""Write a study's folder: the merged rows first, which are never lost, then figures, tables and text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from mlm_lab.atomic import write_text
from mlm_lab.report import examples, figures, html, latex, markdown, results
from mlm_lab.report.figures import Drawing
from mlm_lab.report.records import POINTS_JSON, TUNE_JSON
from mlm_lab.report.sections import compose_document
from mlm_lab.report.study import Places, Study, gather_known, read_study

REPORT, PAGE, TABLES = "report.md", "report.html", "tables.tex"


def write_report(name: str, places: Places, words: Mapping[str, str]) -> Study:
    """Make the report and everything beside it. The rows are written although the report may be refused. report.md, by which `verify`
    judges, comes last: where it is new, all is.

    Raises:
        UserError: see `gather_known` and `read_study`.
    """
    known = gather_known(name, places)
    if known.rows:
        results.write(places.folder / results.RESULTS, known.rows)
        results.write_curves(places.folder / results.CURVES, known.curves)
    study = read_study(name, places, words, known)
    results.write(places.folder / results.RESULTS, study.rows)  # with the arms, and the points that left no folder
    if study.tune is not None:
        write_text(places.folder / TUNE_JSON, json.dumps(study.tune, indent=2) + "\n")
    if study.records:
        write_text(places.folder / POINTS_JSON, json.dumps([asdict(record) for record in study.records], indent=1) + "\n")
    if study.examples:
        results.write_rows(places.folder / examples.FILE, [found.row for found in study.examples], examples.COLUMNS)
    drawings = plan_figures(study)
    svgs = {drawing.file: figures.draw(drawing, places.folder) for drawing in drawings}
    document = compose_document(study, {drawing.file: drawing.caption for drawing in drawings})
    write_text(places.folder / PAGE, html.render(document, svgs))
    write_text(places.folder / TABLES, latex.render(document, name))
    write_text(places.folder / REPORT, markdown.render(document))
    return study


def plan_figures(study: Study) -> list[Drawing]:
    """The figures of the report, those of the tuned table behind the others."""
    drawings = figures.plan(study.common, study.declaration, study.curves)
    return drawings + (figures.plan(study.tuned, study.declaration, study.curves, suffix="_tuned") if study.tuned is not None else [])
