"""What may stand in one table: runs that differ in the declared factors, the seed and the machine alone, and scores on one scale.

A table of runs that differ in more is refused, with the keys. A metric whose scale differs between arms (a loss under each arm's own masks,
over another vocabulary, under another protocol) is shown and not compared, or split into one column for each scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlm_lab.errors import LISTED, UserError
from mlm_lab.report.rows import CONFIG, Row

TARGET = f"{CONFIG}objective._target_"
_FREE = (f"{CONFIG}seeds.",)
"""Columns in which runs always may differ."""
_STORE = (f"{CONFIG}data.", f"{CONFIG}tokenizer.")
_COMES_WITH = {"pretrained": ("model", "tokenizer")}
"""A factor -> the groups of the config that are chosen by it."""
_WARNED = ("versions/torch", "git_commit")
"""What may change a result in its last digits, or more: told, not refused."""
_PRINTS = ("fingerprints/corpus", "fingerprints/tokenizer", "fingerprints/store")
_TOKENS = ("val/", "train/", "probe/")
"""Scores over tokens."""
_OWN_MASKS = ("val/", "train/")
"""What is measured under the run's own recipe."""
_NO_MASKS = ("objective.duplicates",)
"""Keys of the objective that leave the held-out masks alone."""


@dataclass(frozen=True)
class Difference:
    """A column in which runs of the table differ without being declared."""

    column: str
    values: Mapping[str, int]
    """Value -> how many runs have it."""

    def __str__(self) -> str:
        shown = ", ".join(f"{value or 'absent'} ({count} run{'s' * (count > 1)})" for value, count in self.values.items())
        return f"{self.column.removeprefix(CONFIG)}: {shown}"


def undeclared_differences(rows: Sequence[Row], factors: Iterable[str], tuned_key: str | None = None) -> list[Difference]:
    """The columns in which the runs differ although they should not: of the config, the precision, the text and the tokenizer.

    factors: config keys and groups that are declared to differ. Keys of `data` and `tokenizer` count where the token store differs: files
    may lie elsewhere on another machine.
    """
    allowed = [*factors, *([tuned_key] if tuned_key else [])]
    allowed += [part for factor in allowed for part in _COMES_WITH.get(factor, ())]
    store_declared = any(key.partition(".")[0] in ("data", "tokenizer") for key in allowed)
    one_store = len({row.get("fingerprints/store", "") for row in rows}) == 1 and all("fingerprints/store" in row for row in rows)
    columns = sorted({column for row in rows for column in row if column.startswith(CONFIG)})
    columns += ["precision", *([] if store_declared else _PRINTS)]
    found = []
    for column in columns:
        key = column.removeprefix(CONFIG)
        declared = any(key == factor or key.startswith(f"{factor}.") for factor in allowed)
        if not declared and not column.startswith(_FREE) and not (one_store and column.startswith(_STORE)):
            found += _difference(rows, column)
    return found


def warnings(rows: Sequence[Row], baseline: str | None) -> list[str]:
    """What the reader of a table should know of the code that made its runs."""
    return [
        f"The runs differ in {difference}.{_apart(rows, column, baseline)}"
        for column in _WARNED
        for difference in _difference(rows, column)
    ]


def _apart(rows: Sequence[Row], column: str, baseline: str | None) -> str:
    """Which arms share no version with the baseline."""
    of_arms: dict[str, set[str]] = {}
    for row in rows:
        of_arms.setdefault(row.get("arm", ""), set()).add(row.get(column, ""))
    theirs = of_arms.get(baseline or "")
    odd = [arm for arm, values in of_arms.items() if theirs is not None and values.isdisjoint(theirs)]
    if not odd:
        return ""
    arms = ", ".join(f"`{arm}`" for arm in sorted(odd))
    return f" No run of the baseline has what these arms have, so what it changes would pass for a difference from the baseline: {arms}."


def refuse_undeclared(differences: Sequence[Difference], rows: Sequence[Row], name: str) -> None:
    """Raises UserError naming the keys, what they hold, and a run that is odd."""
    if not differences:
        return
    rest = [f"... and {len(differences) - LISTED} more"] if len(differences) > LISTED else []
    first = differences[0]
    odd = min(first.values, key=lambda value: first.values[value])
    example = next(row for row in rows if row.get(first.column, "") == odd)
    raise UserError(
        f"runs of {name} differ in more than the declared factors, the seed and the machine:\n  "
        + "\n  ".join([*(str(difference) for difference in differences[:LISTED]), *rest]),
        given=f"for instance run {example['config_hash'][:12]} (arm {example.get('arm') or 'none'}, seed {example.get('seed', 'none')})",
        fix="give what is another question another study=NAME, or declare the key a factor in the sweep file",
    )


def refuse_twins(rows: Sequence[Row], name: str) -> None:
    """Raises UserError where an arm has two runs of one seed: which of them counts, nobody has said beforehand."""
    seen: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row.get("arm", ""), row.get("seed", ""))
        if key[1] and key in seen:
            ours, theirs = row, seen[key]
            columns = sorted(column for column in {*ours, *theirs} if column.startswith((CONFIG, "precision")))
            differing = [column.removeprefix(CONFIG) for column in columns if ours.get(column) != theirs.get(column)]
            raise UserError(
                f"an arm of {name} has two runs of one seed",
                where=f"{key[0]}, seed {key[1]}: runs {theirs['config_hash'][:12]} and {ours['config_hash'][:12]}",
                given=f"they differ in {', '.join(differing[:LISTED]) or 'nothing that the report knows of (code, pretrained weights)'}",
                fix="give one of them another study=NAME, and take its row out of results.csv",
            )
        seen[key] = row


@dataclass(frozen=True)
class Column:
    """A metric on one scale."""

    metric: str
    label: str
    """With what tells it from the same metric on other scales."""
    arms: tuple[str, ...]
    reason: str | None
    """Why its arms are not compared; None where they are."""


def columns_of(metric: str, by_arm: Mapping[str, Sequence[Row]]) -> list[Column]:
    """The columns of a metric: one, or one for each scale that the arms are on."""
    having = {arm: [row for row in rows if metric in row or f"{metric}/n" in row] for arm, rows in by_arm.items()}
    having = {arm: rows for arm, rows in having.items() if rows}
    scales: dict[tuple[str, ...], list[str]] = {}
    for arm, rows in having.items():
        scales.setdefault(_scale(metric, rows[0]), []).append(arm)
    told = [place for place, parts in enumerate(zip(*scales, strict=True)) if len(set(parts)) > 1]
    columns = []
    for scale, arms in scales.items():
        shown = ", ".join(scale[place] for place in told if scale[place])
        suffix = f" ({shown})" if shown else ""
        columns.append(Column(metric, metric + suffix, tuple(arms), _reason(metric, [row for arm in arms for row in having[arm]])))
    return columns


def _scale(metric: str, row: Row) -> tuple[str, ...]:
    """What has to be alike in one column, in words: the kind of objective under whose own recipe a loss is measured, the vocabulary."""
    objective = row.get(TARGET, "").rpartition(".")[2]
    if not metric.startswith(_TOKENS):
        alike = row.get(f"{metric}/within", "").split()  # Task.ranked_within
        return (", ".join(objective if name == "objective" else f"{name}={row.get(CONFIG + name, '-')}" for name in alike),)
    vocabulary = row.get("fingerprints/tokenizer", "")[:8]
    return (objective if metric.startswith(_OWN_MASKS) else "", f"vocabulary {vocabulary}" if vocabulary else "")


def _reason(metric: str, rows: Sequence[Row]) -> str | None:
    if not metric.startswith(_TOKENS):
        protocols = {row.get(f"{metric}/protocol", "") for row in rows}
        if len(protocols) > 1:
            return f"evaluated under several protocols ({', '.join(sorted(protocols))})"
        task = metric.partition("/")[0]
        for column, what in (("settings", "evaluated under several settings"), ("examples", "evaluated on several sets of examples")):
            if len({row.get(f"{task}/{column}") or None for row in rows} - {None}) > 1:  # runs of before have no examples noted
                return what
        return None
    if len({row.get("fingerprints/corpus", "") for row in rows}) > 1:
        return "each arm is measured on held-out text of its own corpus"
    if _differs(rows, [f"{CONFIG}max_length", f"{CONFIG}validation.sequences"]):
        return "the held-out rows differ between arms"
    if metric.startswith(_OWN_MASKS):
        recipe = sorted({column for row in rows for column in row if column.startswith(f"{CONFIG}objective.")})
        keys = [key for column in _differs(rows, recipe) if (key := column.removeprefix(CONFIG)) not in _NO_MASKS]
        if keys:
            shown = ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
            return f"each arm is measured under masks of its own recipe, which differs in {shown}"
    return None


def _differs(rows: Sequence[Row], columns: Iterable[str]) -> list[str]:
    return [column for column in columns if len({row.get(column, "") for row in rows}) > 1]


def _difference(rows: Sequence[Row], column: str) -> list[Difference]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.get(column, "")] = counts.get(row.get(column, ""), 0) + 1
    return [Difference(column, dict(sorted(counts.items(), key=lambda item: -item[1])))] if len(counts) > 1 else []
