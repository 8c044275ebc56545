"""What was run and what was measured, so that a report can be read without the sweep file: the settings that all runs share, what stands
behind the names of arms, what each metric is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlm_lab.report.analysis import Table as Analysed
from mlm_lab.report.declaration import Declaration
from mlm_lab.report.document import Block, Heading, Paragraph, Table
from mlm_lab.report.rows import CONFIG
from mlm_lab.report.units import meaning_of

_SHARED = (
    "objective._target_",
    "objective.mask_ratio",
    "objective.replace_mix",
    "objective.unit",
    "objective.input_format",
    "data._target_",
    "tokenizer._target_",
    "tokenizer.vocab_size",
    "tokenizer.lowercase",
    "pretrained",
    "model.num_layers",
    "model.hidden_size",
    "max_length",
    "batch_size",
    "budget.steps",
    "budget.tokens",
    "budget.flops",
    "budget.hours",
    "optim._target_",
    "optim.peak_lr",
    "schedule._target_",
)
"""Keys that a reader looks for first."""
_READABLE = 6
"""Columns of the table of arms at most."""
_TARGET = "._target_"
_HELD_OUT = re.compile(r"(?P<place>val|probe)/(?:(?P<probe>\w+?)_(?P<ratio>\d+)(?P<generator>_generator)?_)?(?P<rest>\w+)")
_PARTS = {"masked": " at [MASK]", "random": " where a random token stands", "kept": " where the token was kept"}
_SCORES = {"loss": "cross-entropy", "perplexity": "exponential of the cross-entropy", "accuracy": "share of right predictions"}


def what_was_run(tables: Sequence[Analysed], declaration: Declaration) -> Iterator[Block]:
    """The section; nothing where no run is finished. tables: the first is described, all count where it says what all runs have."""
    table = tables[0]
    if not table.by_arm:
        return
    yield Heading("What was run and measured")
    shared = ", ".join(f"`{word}`" for word in _shared(tables))
    if shared:
        yield Paragraph(f"All runs have alike: {shared}. `results.csv` has every key of every run.")
    if (described := arms(table, declaration)) is not None:
        yield described
    if (described := metrics(table)) is not None:
        yield described


def _shared(tables: Sequence[Analysed]) -> Iterator[str]:
    """key=value of the settings that no run has otherwise; classes by their names."""
    rows = [row for table in tables for runs in table.by_arm.values() for row in runs]
    for key in _SHARED:
        values = {row.get(CONFIG + key, "null") for row in rows}
        if len(values) == 1 and (value := values.pop()) not in ("null", ""):
            yield f"{key.removesuffix(_TARGET)}={value.rpartition('.')[2] if key.endswith(_TARGET) else value}"
    precisions = {row.get("precision", "") for row in rows}
    if len(precisions) == 1 and all(precisions):
        yield f"precision={precisions.pop()}"


def arms(table: Analysed, declaration: Declaration) -> Table | None:
    """What stands behind the arms of conf/arm: the keys that differ between them. None for other arms, whose labels are their values, and
    where the keys would be too many to read."""
    if not any("arm" in values for values in declaration.arms.values()):
        return None
    columns = sorted({column for rows in table.by_arm.values() for row in rows for column in row if column.startswith(CONFIG)})
    cells = {column: [{row.get(column) or "-" for row in rows} for rows in table.by_arm.values()] for column in columns}
    of_arms = {column: [value for (value,) in found] for column, found in cells.items() if all(len(values) == 1 for values in found)}
    columns = [column for column, found in of_arms.items() if len(set(found)) > 1]  # so no seeds
    if not 0 < len(columns) <= _READABLE:
        return None
    keys = [column.removeprefix(CONFIG) for column in columns]
    rows = [[arm, *cells] for arm, *cells in zip(table.by_arm, *(of_arms[column] for column in columns), strict=True)]
    note = " ".join(f"{key}: {meaning}." for key in keys if (meaning := meaning_of(key)))
    return Table("arms", "The arms", ["arm", *(f"`{key}`" for key in keys)], rows, note or None)


def metrics(table: Analysed) -> Table | None:
    """What the metrics are that were named before the runs. None where nothing is known of any."""
    names = dict.fromkeys(result.column.metric for result in table.metrics if result.named)
    rows = [[f"`{name}`", meaning] for name in names if (meaning := describe(name))]
    note = "A task's score is that on its dev part, unless its name says test."
    return Table("metrics", "The metrics that were named before the runs", ["metric", "what it is"], rows, note) if rows else None


def describe(metric: str) -> str:
    """What a metric is, in words; empty for what only its author knows."""
    if found := _HELD_OUT.fullmatch(metric):
        return _of_held_out(found)
    from mlm_lab.config.options import conf_dir, header

    file = conf_dir() / "task" / f"{metric.partition('/')[0]}.yaml"
    return header(file) if file.is_file() else ""


def _of_held_out(found: re.Match[str]) -> str:
    part, _, score = found["rest"].rpartition("_")
    what = f"{_SCORES.get(score, score)}{_PARTS.get(part.rpartition('_')[2], '')}"
    if found["place"] == "val":
        return f"held-out text, under the run's own recipe: {what}"
    if found["probe"] != "mlm":
        return f"held-out text, under one recipe for all arms: {what}"
    filled = ", filled by the generator" if found["generator"] else ""
    return f"held-out text, {found['ratio']} % of the tokens selected and 80/10/10 (mask/random/keep) of them in every arm{filled}: {what}"
