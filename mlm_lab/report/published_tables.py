"""Tables of published rows, of what may be compared with them, and the reasons for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from mlm_lab.report.document import Table
from mlm_lab.report.published import SCALE, PublishedContrast, PublishedStudy
from mlm_lab.report.tables import slug


def facts(study: PublishedStudy) -> Table:
    metrics = list(study.labels)
    rows = [
        [row.name, row.arm or "-", *(_published(row.values[metric]) if metric in row.values else "-" for metric in metrics)]
        for row in study.rows
    ]
    columns = ["published", "arm here", *(study.labels[metric] for metric in metrics)]
    return Table(slug(study.id), study.source, columns, rows, f"{study.setting[0].upper()}{study.setting[1:]}. From 0 to {SCALE}.")


def _published(value: float) -> str:
    """With the decimals of the source, one at least."""
    return f"{value:.1f}" if round(value, 1) == value else f"{value:g}"


def contrasts(study: PublishedStudy) -> Table | None:
    """The published differences that may be compared, beside ours."""
    rows = []
    for contrast in study.contrasts:
        if contrast.reason is None and contrast.ours is not None:
            difference, low, high = contrast.ours
            ours = f"{difference:+.2f}" + (f" ({low:+.2f} to {high:+.2f})" if low is not None and high is not None else "")
            rows.append(
                [
                    contrast.arm,
                    contrast.metric,
                    f"{contrast.published:+.2f}",
                    ours,
                    contrast.verdict or "-",
                    _agreement(contrast.published, contrast),
                ]
            )
    if not rows:
        return None
    note = (
        "Points, arm minus baseline; ours with its own 95 % interval. Direction: whether ours, where it is told from zero, has the "
        "published sign."
    )
    columns = ["arm", "metric", "published difference", "ours", "our verdict", "direction"]
    return Table(slug(f"{study.id} compared"), "What may be compared with it", columns, rows, note)


def _agreement(published_difference: float, contrast: PublishedContrast) -> str:
    difference, low, high = contrast.ours
    if low is None or high is None or low <= 0 <= high:
        return "ours is not told from zero"
    return "the same" if (difference > 0) == (published_difference > 0) else "the opposite"


def reasons(studies: Sequence[PublishedStudy]) -> list[str]:
    """A line for each reason for which published numbers are not compared."""
    lines = []
    for study in studies:
        if study.reason is not None:
            lines.append(f"{study.id}: {study.reason}.")
        grouped: dict[str, list[str]] = {}
        for contrast in study.contrasts:
            if contrast.reason is not None:
                grouped.setdefault(contrast.reason, []).append(f"{contrast.metric} of {contrast.row}")
        for reason, names in grouped.items():
            metrics = list(dict.fromkeys(name.split(" of ")[0] for name in names))
            shown = ", ".join(names) if len(names) <= 2 else f"{', '.join(metrics)} ({len(names)} differences)"
            lines.append(f"{study.id}, {shown}: {reason}.")
    return lines
