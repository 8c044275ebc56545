"""The user's own task: one file or folder named by evaluation.files.NAME, CoNLL columns or a table with text and label columns.

A folder has train.* and dev.* (or valid.*), and test.* if there is one. A single file is all training examples, from which the dev part is
cut by a hash of the text: the same examples on every machine and run, and a text that occurs twice stays on one side.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.errors import UserError
from mlm_lab.evaluation.conll import label_names, read_conll
from mlm_lab.evaluation.files import find_file, read_lines, unknown_label
from mlm_lab.evaluation.metrics import metric_names
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import Check, FineTunedTask, SequenceExample, TaskData

if TYPE_CHECKING:
    from mlm_lab.evaluation.measures.measure import Measure
    from mlm_lab.tokenizers.loading import LoadedTokenizer

TABULAR = (".csv", ".tsv", ".jsonl")
COLUMNS = (".conll", ".txt")
STEMS = {"train": ("train",), "dev": ("dev", "valid"), "test": ("test",)}


@dataclass(frozen=True, kw_only=True)
class Own(FineTunedTask):
    """Classification, regression (csv, tsv, jsonl) or tagging (conll, txt), by the file's ending."""

    text_column: str
    """Column of the text."""
    pair_column: str | None
    """Column of a second text; null: there is none."""
    label_column: str
    """Column of the label."""
    regression: bool
    """Labels are values to predict, not classes."""
    probe: bool
    """Fit a linear probe on the frozen encoder's layers (measures/linear_probe.py) instead of fine-tuning; epochs, steps, learning_rate and
    batch_size then do not matter. Both: give the file a second name, evaluation.files.mine_probe=PATH task.mine_probe.probe=true."""
    dev_share: float
    """Share of the examples cut for dev where no dev file is given."""

    def checks(self) -> tuple[Check, ...]:
        return (
            *super().checks(),
            ("probe", self.probe, not (self.probe and self.regression), "false with regression: a probe wants classes"),
            ("dev_share", self.dev_share, 0 < self.dev_share < 1, "above 0 and below 1"),
        )

    def seeds(self, evaluation: Evaluation, first: int) -> Sequence[int]:
        return range(1) if self.probe else super().seeds(evaluation, first)

    def measure(self, data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int) -> Measure:
        if not self.probe:
            return super().measure(data, evaluation, tokenizer, max_length)
        from mlm_lab.evaluation.measures.linear_probe import LinearProbe

        return LinearProbe(metric_names(self, data), data, evaluation, tokenizer, max_length)

    def pools(self, evaluation: Evaluation) -> bool:
        return _ending(self._files(evaluation)["train"]) not in COLUMNS

    def check(self, evaluation: Evaluation) -> None:
        """Read the files to their end: what is wrong in line 900 is better known before pretraining than after it."""
        self.load(evaluation, Path())

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        files = self._files(evaluation)
        tagging = _ending(files["train"]) in COLUMNS
        if tagging:
            parts = {part: read_conll(file, plain_tags=True) for part, file in files.items()}
            names, kind = label_names(*parts.values()), "tagging"
        else:
            names = () if self.regression else tuple(sorted({label for _, _, _, label in self._rows(files["train"])}))
            parts = {part: self._examples(file, names) for part, file in files.items()}
            kind = "regression" if self.regression else "classification"
        notes = ()
        if "dev" not in parts:
            whole = parts["train"]
            held_out = [_hash_share(example) < self.dev_share for example in whole]
            parts["train"] = [example for example, held in zip(whole, held_out, strict=True) if not held]
            parts["dev"] = [example for example, held in zip(whole, held_out, strict=True) if held]
            notes = (f"{len(parts['dev'])} of {len(whole)} examples were cut for dev, by a hash of their text",)
        for part, examples in parts.items():
            if not examples:
                raise UserError(
                    f"task {self.name}: the {part} part is empty", where=str(files["train"]), fix="give more examples or a dev file"
                )
        return TaskData(kind, names, parts.pop("train"), parts.pop("dev"), extra=parts, notes=notes)

    def _files(self, evaluation: Evaluation) -> dict[str, Path]:
        endings = ", ".join((*COLUMNS, *TABULAR))
        if self.name not in evaluation.files:
            raise UserError(f"task {self.name} has no file", fix=f"evaluation.files.{self.name}=PATH")
        path = Path(evaluation.files[self.name]).expanduser()
        if path.is_dir():
            found = {part: find_file(path, stems, (*COLUMNS, *TABULAR)) for part, stems in STEMS.items()}
            files = {part: file for part, file in found.items() if file is not None}
        else:
            files = {"train": path} if path.is_file() else {}
        if "train" not in files or _ending(files["train"]) not in (*COLUMNS, *TABULAR):
            raise UserError(
                f"task {self.name}: there is no such file",
                given=f"evaluation.files.{self.name}={path}",
                allowed=f"a file that ends in {endings} (also .gz), or a folder that has train and one of them",
            )
        return files

    def _rows(self, file: Path) -> Iterator[tuple[int, str, str | None, str]]:
        """(line, text, second text, label) of each row."""
        wanted = [column for column in (self.text_column, self.pair_column, self.label_column) if column is not None]
        rows = _read_jsonl(file) if _ending(file) == ".jsonl" else _read_table(file)
        line = None
        for line, row in rows:
            missing = [column for column in wanted if row.get(column) is None]
            if missing:
                given = ", ".join(str(name) for name in row if name is not None)
                raise UserError(
                    f"there is no {', '.join(missing)}",
                    where=f"{file}, line {line}",
                    given=given,
                    fix=f"task.{self.name}.text_column=NAME",
                )
            pair = None if self.pair_column is None else str(row[self.pair_column])
            yield line, str(row[self.text_column]), pair, str(row[self.label_column])
        if line is None:
            raise UserError("the file has no examples", where=str(file))

    def _examples(self, file: Path, names: Sequence[str]) -> list[SequenceExample]:
        return [SequenceExample(text, pair, self._label(label, names, file, line)) for line, text, pair, label in self._rows(file)]

    def _label(self, label: str, names: Sequence[str], file: Path, line: int) -> int | float:
        if not self.regression:
            if label not in names:
                raise unknown_label(file, line, label, names)
            return names.index(label)
        try:
            value = float(label)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise unknown_label(file, line, label, ["a number"])
        return value


def _ending(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).suffix


def _hash_share(example: Sequence) -> float:
    """The example's text as a number in [0, 1)."""
    return int.from_bytes(blake2b(repr(example[0]).encode(), digest_size=7).digest(), "big") / 2**56


def _read_jsonl(file: Path) -> Iterator[tuple[int, dict]]:
    for number, line in read_lines(file):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"the line is not JSON: {error}", where=f"{file}, line {number}") from error
            if not isinstance(row, dict):
                raise UserError("the line is not a JSON object", where=f"{file}, line {number}", given=line[:80])
            yield number, row


def _read_table(file: Path) -> Iterator[tuple[int, dict]]:
    """csv with the usual quoting; tsv with quotes taken literally. The first line names the columns."""
    csv.field_size_limit(2**31 - 1)  # the module's limit is 131,072 characters
    lines = (line + "\n" for _, line in read_lines(file))
    style = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if _ending(file) == ".tsv" else {}
    reader = csv.DictReader(lines, **style)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise UserError(f"not a row of a table: {error}", where=f"{file}, line {reader.line_num}") from None
