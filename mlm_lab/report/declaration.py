"""What a study has declared, whatever its runs came to: question, factors, arms in their order, primary contrast, margin.

From the sweep file where it is at hand (with the points that its runner planned); otherwise from the command line, and the arms from the
runs themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm_lab.errors import UserError
from mlm_lab.report.records import COMMON, TUNED, Record
from mlm_lab.report.rows import CONFIG, Row, spelt_alike
from mlm_lab.sweep.sweep_file import LESS_IS_BETTER, SEED

if TYPE_CHECKING:
    from mlm_lab.sweep.sweep_file import SweepFile, Tune


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What the report answers and may compare."""

    name: str
    question: str
    source: str
    """Where it was declared."""
    factors: tuple[str, ...]
    """Keys that the arms differ in: config keys, groups, `arm`."""
    arms: Mapping[str, Mapping[str, Any]]
    """Label -> value of each factor, in the order of tables and figures."""
    planned: Mapping[str, Sequence[tuple[str, int | None]]]
    """Table (common, tuned) -> (arm, seed) of its points; empty where nobody says how many there should be."""
    baseline: str | None
    """The arm that the others are compared with; None where there is none."""
    contrast: str | None
    """The arm of the contrast that was named before the runs."""
    metric: str | None
    """The primary metric."""
    higher_is_better: bool
    """Of the primary metric."""
    metrics: tuple[str, ...]
    """Further metrics that were named."""
    margin: float | None
    ordered: bool
    tune: Tune | None
    published: tuple[str, ...]
    pilot_seeds: tuple[int, ...]
    """Seeds whose runs chose what is tested: in tables and figures, in no test."""

    @property
    def command(self) -> str:
        """The report's own command line, but for where the run folders are."""
        sweep = f" sweep={self.source}" if self.source.endswith(".yaml") and Path(self.source) != Path(f"sweeps/{self.name}.yaml") else ""
        return f"python -m mlm_lab.report {self.name}{sweep}"

    @property
    def named(self) -> tuple[str, ...]:
        """The metrics that were named before the runs, the primary one first."""
        return tuple(dict.fromkeys([*([self.metric] if self.metric else []), *self.metrics]))

    def is_better_higher(self, metric: str) -> bool:
        """Whether more of a metric is better."""
        return self.higher_is_better if metric == self.metric else not metric.endswith(LESS_IS_BETTER)


def of_sweep(name: str, sweep: SweepFile, records: Sequence[Record], rows: Sequence[Row], tune: Mapping | None = None) -> Declaration:
    """The declaration of a sweep file. The points that its runner planned go before the file's own grid, since key=value words after the
    file change them; a search has the arms that it found. tune: tune.json.

    Raises:
        UserError: the contrast is the baseline.
    """
    study = sweep.study
    arms, planned = _of_points(sweep, records)
    if TUNED not in planned and tune is not None and COMMON in planned:  # no records: each arm that has a rate of its own
        planned[TUNED] = [(arm, seed) for arm, seed in planned[COMMON] if (tune["arms"].get(arm) or {}).get("best") is not None]
    if not arms:
        arms = _of_rows(study.factor, rows)
    primary = study.primary
    baseline = _find(primary.baseline, arms) if primary else next(iter(arms), None)
    contrast = _find(primary.contrast, arms) if primary else None
    _refuse_itself(baseline, contrast, arms, f"{sweep.path}, primary")
    metric = primary.metric if primary else sweep.metric
    return Declaration(
        name=name,
        question=study.question,
        source=str(sweep.path),
        factors=study.factor,
        arms=arms,
        planned=planned,
        baseline=None if sweep.is_searched and not primary else baseline,
        contrast=contrast,
        metric=metric,
        higher_is_better=sweep.goal == "maximize" if metric == sweep.metric else not metric.endswith(LESS_IS_BETTER),
        metrics=study.metrics,
        margin=study.margin,
        ordered=study.ordered,
        tune=study.tune,
        published=study.published,
        pilot_seeds=study.pilot_seeds,
    )


def of_words(name: str, words: Mapping[str, str], rows: Sequence[Row]) -> Declaration:
    """The declaration of a study without a sweep file: factor=KEY[,KEY] metric=NAME baseline=VALUE contrast=VALUE margin=NUMBER.

    Raises:
        UserError: no factor is given, or no run has its key; the baseline is no arm; the contrast is the baseline.
    """
    factors = tuple(word for word in words.get("factor", "").split(",") if word)
    where = f"sweeps/{name}.yaml"
    missing = [key for key in factors if not any(CONFIG + key in row for row in rows)]
    if not factors or missing:
        raise UserError(
            f"no run has the key {missing[0]}" if missing else "the study has no sweep file, so nothing says what its arms differ in",
            where=None if missing else where,
            fix="name the config keys that were varied: factor=objective.mask_ratio metric=probe/mlm_15_loss baseline=0.15",
        )
    arms = _of_rows(factors, rows)
    metric = words.get("metric")
    chosen = {word: next((arm for arm in arms if _is_meant(words[word], arm, arms[arm])), None) for word in words if word in _OF_ARMS}
    for word, arm in chosen.items():
        if arm is None:
            raise UserError(f"{word} is none of the arms", given=f"{word}={words[word]}", allowed=", ".join(arms))
    baseline = chosen.get("baseline") or next(iter(arms), None)
    _refuse_itself(baseline, chosen.get("contrast"), arms, "the command line")
    return Declaration(
        name=name,
        question="",
        source="the command line",
        factors=factors,
        arms=arms,
        planned={},
        baseline=baseline,
        contrast=chosen.get("contrast"),
        metric=metric,
        higher_is_better=metric is not None and not metric.endswith(LESS_IS_BETTER),
        metrics=(),
        margin=_margin(words.get("margin")),
        ordered=False,
        tune=None,
        published=(),
        pilot_seeds=(),
    )


_OF_ARMS = ("baseline", "contrast")


def _refuse_itself(baseline: str | None, contrast: str | None, arms: Mapping[str, Mapping[str, Any]], where: str) -> None:
    if contrast is not None and contrast == baseline:
        others = ", ".join(arm for arm in arms if arm != baseline)
        raise UserError("the contrast is the baseline itself", where=where, given=f"contrast: {contrast}", allowed=others or None)


def _of_points(sweep: SweepFile, records: Sequence[Record]) -> tuple[dict[str, Mapping[str, Any]], dict[str, list[tuple[str, int | None]]]]:
    """The arms in the file's order, those that only the records have after them; and the points of each table."""
    common = [record for record in records if COMMON in record.tables]
    of_file = sweep.points()
    seen = {record.arm for record in common}
    arms = {point.arm: point.values for point in of_file if not common or point.arm in seen}
    arms |= {record.arm: record.values for record in common if record.arm not in arms}
    arms = {arm: {key: value for key, value in values.items() if key != SEED} for arm, values in arms.items()}
    order = {arm: place for place, arm in enumerate(arms)}
    planned = {
        COMMON: [(record.arm, record.seed) for record in common] or [(point.arm, point.seed) for point in of_file],
        TUNED: [(record.arm, record.seed) for record in records if TUNED in record.tables and record.arm in order],
    }
    if sweep.is_searched:  # as many points as it takes, in the order of their values
        return dict(sorted(arms.items(), key=lambda item: _place(item[1]))), {}
    return arms, {table: sorted(points, key=lambda point: (order[point[0]], point[1] or 0)) for table, points in planned.items() if points}


def _of_rows(factors: Sequence[str], rows: Sequence[Row]) -> dict[str, Mapping[str, Any]]:
    """The arms that the runs themselves have, by the values of the factors; numbers in their order."""
    from mlm_lab.sweep.points import label

    found = {}
    for row in rows:
        values = {key: _value(row.get(CONFIG + key, "")) for key in factors}
        found.setdefault(label(values), values)
    return dict(sorted(found.items(), key=lambda item: _place(item[1])))


def _place(values: Mapping[str, Any]) -> tuple:
    """For sorting: numbers by their size, before names."""
    return tuple((0, value, "") if isinstance(value, int | float) else (1, 0, str(value)) for value in values.values())


def _value(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _find(given: Any, arms: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The arm that a value of the primary contrast means; None where it is not among them (key=value words may have left it out)."""
    return next((arm for arm, values in arms.items() if _is_meant(given, arm, values)), None)


def _is_meant(given: Any, arm: str, values: Mapping[str, Any]) -> bool:
    if isinstance(given, Mapping):
        return all(key in values and spelt_alike(values[key]) == spelt_alike(value) for key, value in given.items())
    return given == arm or (len(values) == 1 and spelt_alike(next(iter(values.values()))) == spelt_alike(given))


def _margin(given: str | None) -> float | None:
    try:
        margin = None if given is None else float(given)
    except ValueError:
        margin = 0.0
    if margin is not None and not margin > 0:
        raise UserError("margin must be a number above 0", given=f"margin={given}")
    return margin
