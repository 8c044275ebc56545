"""Published rows beside ours, and which of them may be compared (published.yaml holds the facts).

A published difference is compared where both of its rows are arms of the study, the same score was measured on the same split under the
same protocol, and the difference is larger than two runs of one recipe differ by. Everything else is "not comparable", with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mlm_lab.errors import UserError
from mlm_lab.keys import suggest
from mlm_lab.report.analysis import MetricResult, Table
from mlm_lab.report.declaration import Declaration
from mlm_lab.report.rows import CONFIG, Row, config_text

FILE = Path(__file__).with_name("published.yaml")
SCALE = 100
"""Published scores run from 0 to 100, ours from 0 to 1."""
TIMES_NOISE = 1.96 * math.sqrt(2)
"""Two runs of one recipe differ by less than this many standard deviations in 19 cases of 20."""
_UNSURE = ("presumed", "not stated")
_SPLIT = "dev"
"""The split that our evaluations report, but for columns named test/..."""


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    name: str
    """As the source calls it."""
    arm: str | None
    """The arm of the study that is the same choice."""
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class PublishedContrast:
    """A published difference from the row that our baseline is, beside ours."""

    metric: str
    row: str
    arm: str
    published: float
    """Difference, in points."""
    ours: tuple[float, float | None, float | None] | None
    """Our difference and its interval, in points; None where it was not measured."""
    verdict: str | None
    """Ours, in words; None where it was not tested."""
    reason: str | None
    """Why the two are not comparable; None where they are."""


@dataclass(frozen=True, kw_only=True)
class PublishedStudy:
    id: str
    source: str
    setting: str
    labels: Mapping[str, str]
    """Metric -> how the table heads it."""
    rows: tuple[PublishedRow, ...]
    contrasts: tuple[PublishedContrast, ...]
    reason: str | None
    """Why none of its rows can be compared; None where some contrast was looked at."""


@cache
def facts() -> dict[str, Any]:
    """published.yaml: {noise: {source, std}, studies: {id: study}}."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    values = yaml.load(FILE.read_text(encoding="utf-8"), Loader=loader)
    return {**values, "studies": {study["id"]: study for study in values["studies"]}}


def beside(declaration: Declaration, table: Table) -> list[PublishedStudy]:
    """The published tables that the study names, each with what may be compared.

    Raises:
        UserError: an id that published.yaml does not have.
    """
    known = facts()["studies"]
    for name in declaration.published:
        if name not in known:
            raise UserError(
                f"no such published table{suggest(name, known)}",
                where=declaration.source,
                given=f"published: {name}",
                allowed=", ".join(known),
            )
    return [_study(known[name], declaration, table) for name in declaration.published]


def _study(study: Mapping[str, Any], declaration: Declaration, table: Table) -> PublishedStudy:
    examples = {arm: rows[0] for arm, rows in table.by_arm.items()}
    baseline = examples.get(declaration.baseline or "")
    rows = tuple(PublishedRow(name=row["arm"], arm=_arm(row["match"], examples, baseline), values=row["values"]) for row in study["rows"])
    base = next((row for row in rows if row.arm is not None and row.arm == declaration.baseline), None)
    others = [row for row in rows if row.arm is not None and row.arm != declaration.baseline]
    contrasts = [
        _contrast(metric, fact, study["protocol"], row, base, table)
        for row in others
        for metric, fact in study["metrics"].items()
        if base is not None and metric in row.values and metric in base.values
    ]
    return PublishedStudy(
        id=study["id"],
        source=f"{study['source']} (arXiv {study['arxiv']})",
        setting=study["setting"],
        labels={metric: fact["label"] for metric, fact in study["metrics"].items()},
        rows=rows,
        contrasts=tuple(contrasts),
        reason=None if contrasts else _no_contrast(base, others, declaration.baseline),
    )


def _no_contrast(base: PublishedRow | None, others: Sequence[PublishedRow], baseline: str | None) -> str:
    if base is None and not others:
        return "no row of it is an arm of this study"
    return f"no row of it is our baseline, {baseline}" if base is None else "none of its rows but the baseline's is an arm of this study"


def _arm(match: Mapping[str, Any] | None, examples: Mapping[str, Row], baseline: Row | None) -> str | None:
    """The arm whose config holds these values; of several the one that differs least from the baseline."""
    if match is None:
        return None
    fitting = [arm for arm, row in examples.items() if all(row.get(CONFIG + key) == config_text(value) for key, value in match.items())]
    return min(fitting, key=lambda arm: _distance(examples[arm], baseline), default=None)


def _distance(row: Row, baseline: Row | None) -> int:
    columns = {column for column in {*row, *(baseline or {})} if column.startswith(CONFIG) and not column.startswith(f"{CONFIG}seeds.")}
    return sum(row.get(column) != (baseline or {}).get(column) for column in columns)


def _contrast(
    metric: str, fact: Mapping[str, Any], protocol: str, row: PublishedRow, base: PublishedRow, table: Table
) -> PublishedContrast:
    published = row.values[metric] - base.values[metric]
    result = next((result for result in table.metrics if result.column.metric == fact["ours"]), None)
    contrast = None
    if result is not None and result.comparison is not None:
        contrast = next((found for found in result.comparison.contrasts if found.arm == row.arm and found.difference is not None), None)
    ours = (
        None
        if contrast is None
        else tuple(None if end is None else SCALE * end for end in (contrast.difference, contrast.low, contrast.high))
    )
    return PublishedContrast(
        metric=fact["label"],
        row=row.name,
        arm=row.arm or "",
        published=published,
        ours=ours,
        verdict=contrast.verdict if contrast else None,
        reason=_reason(fact, protocol, result, row.arm or "", published, table) or (None if contrast else "ours was not tested"),
    )


def _reason(fact: Mapping[str, Any], protocol: str, result: MetricResult | None, arm: str, published: float, table: Table) -> str | None:
    if any(word in fact["unit"] for word in _UNSURE):
        return f"the source does not say which score it is ({fact['unit']})"
    if fact["ours"] is None or result is None:
        return "not measured here"
    if fact["split"] != _SPLIT:
        return f"theirs is on {fact['split']}, ours on {_SPLIT}"
    own = {row.get(f"{fact['ours']}/protocol", "") for row in table.by_arm[arm]}
    if own != {protocol}:
        shown = ", ".join(sorted(filter(None, own))) or "one setting"
        return f"other protocol (theirs: the paper's grid, best on its reporting set; ours: {shown})"
    std = facts()["noise"]["std"].get(fact["noise"])
    if std is None:
        return "the spread of this score between pretraining runs is not known"
    if abs(published) <= TIMES_NOISE * std:
        return f"the published difference is within the noise of two runs ({TIMES_NOISE * std:.2f} points)"
    return None
