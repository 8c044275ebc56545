"""From rows to what the report says, as numbers: cells, contrasts, endpoints, budgets, what is missing. No text is made here.

rows -> by arm -> for each metric: scores by seed -> statistics.compare -> MetricResult
                                                                             once with every run, once with those not flagged alone
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlm_lab.report.comparable import Column, columns_of
from mlm_lab.report.declaration import Declaration
from mlm_lab.report.gather import FINISHED
from mlm_lab.report.outcomes import failed_by_itself, is_flagged, reasons, seed_of
from mlm_lab.report.rows import Row, flag, number
from mlm_lab.statistics.compare import Comparison, compare
from mlm_lab.statistics.description import Description, describe
from mlm_lab.statistics.proportions import Proportion, proportion

LEVEL = 0.95
_SHOWN = ("val/", "probe/")
_OF_EVALUATION = "/n"
"""What tells the column of an evaluation: TASK/METRIC has its TASK/METRIC/n beside it."""

Scores = dict[str, dict[int, float | None]]
ByArm = Mapping[str, Sequence[Row]]


@dataclass(frozen=True, kw_only=True)
class MetricResult:
    """A column of the table: a metric on one scale, over the arms that have it."""

    column: Column
    named: bool
    """Whether it was named before the runs. Others are described and not tested."""
    primary: bool
    """Whether it is the metric of the primary contrast."""
    answers: bool
    """Whether the primary contrast is tested in it, uncorrected: by the primary metric, in the table that the study asks about."""
    higher_is_better: bool
    scores: Scores
    cells: Mapping[str, Description]
    comparison: Comparison | None
    """None where the arms are not compared; `reason` says why."""
    reason: str | None
    floors: Mapping[str, tuple[float, float | None]]
    """Arm -> mean and standard deviation of the same encoders from random weights."""
    collapsed: Mapping[str, Proportion]
    """Arm -> runs with a fine-tuning that answers every example alike, of those evaluated; empty where none did."""
    escaped: MetricResult | None
    """The same without the runs that stayed on the plateau, collapsed, or lost a fine-tuning; None where there are none."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What an arm's runs took, on average."""

    runs: int
    means: Mapping[str, float | None]
    """Column -> mean over the arm's runs."""
    head_share: float | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table of the study: the common one, or that of tuned arms."""

    by_arm: ByArm
    """Arm -> its finished runs, by seed."""
    failed: ByArm
    """Arm -> its runs that have no number for what they computed, where there are any."""
    metrics: tuple[MetricResult, ...]
    """Those named before the runs first."""
    plateau: Mapping[str, Proportion]
    """Arm -> runs that left the plateau, of those that say; empty where none says."""
    budgets: Mapping[str, Budget]

    @property
    def primary(self) -> MetricResult | None:
        return next((result for result in self.metrics if result.primary), None)


BUDGET_COLUMNS = (
    "tokens",
    "positions",
    "steps",
    "flops",
    "flops_head",
    "parameters",
    "seconds",
    "tokens_per_second",
    "peak_memory_bytes",
)


def analyse(rows: Sequence[Row], declaration: Declaration, answers: bool = True) -> Table:
    """The table over these runs. Only finished ones have a number; those that failed by themselves keep an arm from coming out the better.

    rows: placed in arms; those of no arm are left out. answers: whether the primary contrast is tested in this table; where it is not,
    it is one of the metric's contrasts, corrected with the others.
    """
    finished = [row for row in rows if row.get("status", FINISHED) == FINISHED]
    by_arm = {arm: sorted((row for row in finished if row.get("arm") == arm), key=seed_of) for arm in declaration.arms}
    by_arm = {arm: runs for arm, runs in by_arm.items() if runs}
    failed = {arm: [row for row in rows if row.get("arm") == arm and failed_by_itself(row)] for arm in declaration.arms}
    failed = {arm: runs for arm, runs in failed.items() if runs}
    names = dict.fromkeys([*declaration.named, *_found(finished)])
    results = [_metric(column, by_arm, failed, declaration, answers) for name in names for column in columns_of(name, by_arm)]
    return Table(
        by_arm=by_arm,
        failed=failed,
        metrics=tuple(results),
        plateau=_plateau(by_arm),
        budgets={arm: _budget(runs) for arm, runs in by_arm.items()},
    )


def _found(rows: Iterable[Row]) -> list[str]:
    """The metrics that the runs have: held-out losses and probes, then evaluations."""
    columns = sorted({column for row in rows for column in row})
    evaluations = [column.removesuffix(_OF_EVALUATION) for column in columns if column.endswith(_OF_EVALUATION)]
    return [*(column for column in columns if column.startswith(_SHOWN)), *evaluations]


def _metric(column: Column, by_arm: ByArm, failed: ByArm, declaration: Declaration, answers: bool, flagged: bool = True) -> MetricResult:
    """flagged: whether runs on the plateau, collapsed ones and those that lost a fine-tuning are in it."""
    metric = column.metric
    having = {arm: [row for row in by_arm[arm] if metric in row or f"{metric}/n" in row] for arm in column.arms if arm in by_arm}
    scores = {arm: {seed_of(row): number(row, metric) for row in rows} for arm, rows in having.items()}
    named, primary = metric in declaration.named, metric == declaration.metric
    answers = answers and primary
    collapsed, escaped = _collapsed(metric, having), None
    if flagged:
        clean = {arm: [row for row in rows if not is_flagged(row, metric)] for arm, rows in having.items()}
        if any(len(clean[arm]) < len(rows) for arm, rows in having.items()):
            escaped = _metric(column, {arm: rows for arm, rows in clean.items() if rows}, failed, declaration, answers, flagged=False)
    excluded = {arm: reasons(metric, *(_tested(runs.get(arm, ()), declaration) for runs in (by_arm, failed))) for arm in having}
    comparison, reason = _compare(column, scores, having, declaration, excluded, answers) if named else (None, "not named before the runs")
    return MetricResult(
        column=column,
        named=named,
        primary=primary,
        answers=answers,
        higher_is_better=declaration.is_better_higher(metric),
        scores=scores,
        cells={arm: describe(of_arm.values(), LEVEL) for arm, of_arm in scores.items()},
        comparison=comparison,
        reason=reason,
        floors={arm: floor for arm, rows in having.items() if (floor := _floor(metric, rows)) is not None},
        collapsed=collapsed,
        escaped=escaped,
    )


def _tested(rows: Sequence[Row], declaration: Declaration) -> list[Row]:
    """Those of seeds that chose nothing."""
    return [row for row in rows if seed_of(row) not in declaration.pilot_seeds]


def _compare(
    column: Column, scores: Scores, having: ByArm, declaration: Declaration, excluded: Mapping[str, str | None], answers: bool
) -> tuple[Comparison | None, str | None]:
    """The comparison, or why there is none."""
    if column.reason is not None:
        return None, column.reason
    if declaration.baseline is None:
        return None, "the study has no baseline"
    if not scores.get(declaration.baseline):
        return None, f"the baseline, {declaration.baseline}, has no finished run with this metric"
    if len(scores) < 2:
        return None, "only the baseline has this metric"
    comparison = compare(
        scores,
        baseline=declaration.baseline,
        primary=declaration.contrast if answers and declaration.contrast in scores else None,
        margin=declaration.margin if column.metric == declaration.metric else None,
        higher_is_better=declaration.is_better_higher(column.metric),
        level=LEVEL,
        ordered=declaration.ordered,
        left_plateau={arm: {seed_of(row): flag(row, "left_plateau") for row in rows} for arm, rows in having.items()},
        pilot_seeds=declaration.pilot_seeds,
        excluded_from_pool={arm: reason for arm, reason in excluded.items() if reason},
    )
    return comparison, None


def _floor(metric: str, rows: Sequence[Row]) -> tuple[float, float | None] | None:
    """The arm's floor: the runs of an arm share it, and the mean over them is it."""
    means = [value for row in rows if (value := number(row, f"{metric}/floor")) is not None]
    spreads = [value for row in rows if (value := number(row, f"{metric}/floor_std")) is not None]
    return (sum(means) / len(means), sum(spreads) / len(spreads) if spreads else None) if means else None


def _collapsed(metric: str, having: ByArm) -> dict[str, Proportion]:
    counts = {arm: [value for row in rows if (value := number(row, f"{metric}/collapsed")) is not None] for arm, rows in having.items()}
    if not any(any(values) for values in counts.values()):
        return {}
    return {arm: proportion(sum(map(bool, values)), len(values), LEVEL) for arm, values in counts.items() if values}


def _plateau(by_arm: ByArm) -> dict[str, Proportion]:
    flags = {arm: [known for row in rows if (known := flag(row, "left_plateau")) is not None] for arm, rows in by_arm.items()}
    return {arm: proportion(sum(known), len(known), LEVEL) for arm, known in flags.items() if known}


def _budget(rows: Sequence[Row]) -> Budget:
    means = {name: _mean(number(row, name) for row in rows) for name in BUDGET_COLUMNS}
    total, head = means["flops"], means["flops_head"]
    return Budget(runs=len(rows), means=means, head_share=head / total if total and head is not None else None)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
