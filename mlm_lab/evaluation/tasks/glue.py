"""GLUE (Wang et al. 2019): nine tasks from one table, read from the official TSV files or from the hub.

Quotes are literal in these files. Columns are found by their header, since copies of GLUE order them differently; CoLA has
none, so its columns have fixed places. QQP's official train file has rows cut in two; they are skipped and counted, in no other task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.errors import UserError
from mlm_lab.evaluation.files import find_file, read_lines, unknown_label
from mlm_lab.evaluation.glue_submission import file_text, sets_of
from mlm_lab.evaluation.hub_sets import check_hub_set
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import Check, FineTunedTask, SequenceExample, TaskData

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Row:
    """One task of the table."""

    folder: str
    texts: tuple[str, ...]
    """Headers of text_a and text_b."""
    label: str
    labels: tuple[str, ...]
    """The classes as they are written in the file; () for a score from 0 to 5."""
    metrics: tuple[str, ...]
    dev: str = "dev"
    extra: tuple[tuple[str, str], ...] = ()
    """(name of a further evaluated part, its file's stem)"""
    places: tuple[int, ...] | None = None
    """Places of texts and label, in a file without a header."""
    skips_cut_rows: bool = False


ENTAILMENT = ("entailment", "not_entailment")
BINARY = ("0", "1")
TABLE = {
    "cola": Row("CoLA", ("sentence",), "label", BINARY, ("matthews",), places=(3, 1)),
    "sst2": Row("SST-2", ("sentence",), "label", BINARY, ("accuracy",)),
    "mrpc": Row("MRPC", ("#1 String", "#2 String"), "Quality", BINARY, ("f1", "accuracy")),
    "stsb": Row("STS-B", ("sentence1", "sentence2"), "score", (), ("pearson", "spearman")),
    "qqp": Row("QQP", ("question1", "question2"), "is_duplicate", BINARY, ("f1", "accuracy"), skips_cut_rows=True),
    "mnli": Row(
        "MNLI",
        ("sentence1", "sentence2"),
        "gold_label",
        ("entailment", "neutral", "contradiction"),
        ("accuracy",),
        dev="dev_matched",
        extra=(("mismatched", "dev_mismatched"),),
    ),
    "qnli": Row("QNLI", ("question", "sentence"), "label", ENTAILMENT, ("accuracy",)),
    "rte": Row("RTE", ("sentence1", "sentence2"), "label", ENTAILMENT, ("accuracy",)),
    "wnli": Row("WNLI", ("sentence1", "sentence2"), "label", BINARY, ("accuracy",)),
}
HUB = "nyu-mll/glue"


@dataclass(frozen=True, kw_only=True)
class Glue(FineTunedTask):
    """A GLUE task; `name` says which."""

    def checks(self) -> tuple[Check, ...]:
        return (("name", self.name, self.name in TABLE, "one of " + ", ".join(TABLE)), *super().checks())

    @property
    def row(self) -> Row:
        return TABLE[self.name]

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.row.metrics

    def check(self, evaluation: Evaluation) -> None:
        if evaluation.data_dir is None:
            _check_hub(self.name)
        else:
            for stem in ("train", self.row.dev):
                file = self._file(evaluation.data_dir, stem, needed=True)
                if not self.row.places:
                    _find_columns(_split(file), (*self.row.texts, self.row.label), file)

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        if evaluation.data_dir is None:
            return _from_hub(self.name, evaluation.submission)
        stems = {"train": "train", "dev": self.row.dev, **dict(self.row.extra)}
        notes, parts = [], {}
        for part, stem in stems.items():
            file = self._file(evaluation.data_dir, stem, needed=part in ("train", "dev"))
            if file is None:
                notes.append(f"{self.row.folder} has no {stem} file: only {self.row.dev} is reported")
                continue
            parts[part], skipped = _read(file, self.row)
            notes += [f"{skipped} cut rows of {file.name} were skipped"] if skipped else []
        unlabelled = {}
        for found in sets_of(self.name, self.row.folder) if evaluation.submission else ():
            file = find_file(Path(evaluation.data_dir).expanduser() / "glue" / found.folder, [found.stem], [".tsv"])
            if file is None:
                notes.append(f"glue/{found.folder} has no {found.stem}.tsv: no {found.file} for the test server")
            else:
                unlabelled[found.file] = _read_unlabelled(file, self.row)
        kind = "classification" if self.row.labels else "regression"
        train, dev = parts.pop("train"), parts.pop("dev")
        return TaskData(kind, self.row.labels, train, dev, extra=parts, unlabelled=unlabelled, notes=tuple(notes))

    def submission(self, data: TaskData, answers: Mapping[str, Sequence]) -> dict[str, str]:
        return {file: file_text(of_file, data.label_names) for file, of_file in answers.items()}

    def _file(self, data_dir: str, stem: str, needed: bool) -> Path | None:
        folder = Path(data_dir).expanduser() / "glue" / self.row.folder
        file = find_file(folder, [stem], [".tsv"])
        if file is None and needed:
            raise UserError(
                f"task {self.name}: a file is missing",
                where=str(folder),
                given=f"evaluation.data_dir={data_dir}",
                allowed=f"{stem}.tsv or {stem}.tsv.gz",
                fix="put the official GLUE files there, or evaluation.data_dir=null for the hub",
            )
        return file


def _read(file: Path, row: Row) -> tuple[list[SequenceExample], int]:
    """The examples of a file and the number of cut rows that were skipped."""
    rows = _split(file)
    places = row.places or _find_columns(rows, (*row.texts, row.label), file)
    examples, skipped = [], 0
    for line, fields in rows:
        if len(fields) <= max(places):
            if row.skips_cut_rows:
                skipped += 1
                continue
            raise _too_few_columns(file, line, fields, max(places) + 1)
        *texts, label = (fields[place] for place in places)
        examples.append(SequenceExample(texts[0], texts[1] if len(texts) > 1 else None, _parse_label(label, row, file, line)))
    if not examples:
        raise UserError("the file has no examples", where=str(file))
    return examples, skipped


def _read_unlabelled(file: Path, row: Row) -> list[SequenceExample]:
    """The texts of a test set. It has a header in every task; no row may be skipped, since the server counts them."""
    rows = _split(file)
    places = _find_columns(rows, row.texts, file)
    examples = []
    for line, fields in rows:
        if len(fields) <= max(places):
            raise _too_few_columns(file, line, fields, max(places) + 1)
        texts = [fields[place] for place in places]
        examples.append(SequenceExample(texts[0], texts[1] if len(texts) > 1 else None, 0))
    return examples


def _find_columns(rows: Iterator[tuple[int, list[str]]], wanted: Sequence[str], file: Path) -> tuple[int, ...]:
    """Takes the header off the rows, and says where the wanted columns are."""
    _, header = next(rows, (0, []))
    missing = [name for name in wanted if name not in header]
    if missing:
        given = ", ".join(header)[:200]
        raise UserError(f"the header lacks {', '.join(missing)}", where=f"{file}, line 1", given=given, allowed=", ".join(wanted))
    return tuple(header.index(name) for name in wanted)


def _too_few_columns(file: Path, line: int, fields: Sequence[str], needed: int) -> UserError:
    given = f"{len(fields)}: {' | '.join(fields)[:80]}"
    return UserError("a line has too few columns", where=f"{file}, line {line}", given=given, allowed=f"at least {needed}")


def _split(file: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields). One line is one row: no field of these files holds a line break, and a carriage return is not one."""
    for number, line in read_lines(file):
        if line:
            yield number, line.replace("\r", " ").split("\t")


def _parse_label(text: str, row: Row, file: Path, line: int) -> int | float:
    text = text.strip()
    if row.labels:
        if text not in row.labels:
            raise unknown_label(file, line, text, row.labels)
        return row.labels.index(text)
    try:
        score = float(text)
    except ValueError:
        score = -1.0
    if not 0 <= score <= 5:
        raise unknown_label(file, line, text, ["a number from 0 to 5"])
    return score


def _check_hub(name: str) -> None:
    """Every GLUE set has a column `label`."""
    check_hub_set(name, HUB, name, "label", "train", "glue/NAME/{train,dev}.tsv")


def _from_hub(name: str, submission: bool) -> TaskData:
    """The hub's copy: its class indices follow the table's order, and its columns are text(s), label, idx."""
    _check_hub(name)
    from datasets import load_dataset

    row, sets = TABLE[name], load_dataset(HUB, name)
    parts = {
        split.removeprefix("validation_"): _hub_examples(sets[split]) for split in sets if split != "train" and not split.startswith("test")
    }
    dev = parts.pop("matched" if row.extra else "validation")
    tests = sets_of(name, row.folder) if submission else ()
    unlabelled = {
        test.file: _hub_examples((sets if test.hub[0] == name else load_dataset(HUB, test.hub[0]))[test.hub[1]]) for test in tests
    }
    kind = "classification" if row.labels else "regression"
    return TaskData(kind, row.labels, _hub_examples(sets["train"]), dev, extra=parts, unlabelled=unlabelled)


def _hub_examples(rows: Dataset) -> list[SequenceExample]:
    text_columns = [column for column in rows.column_names if column not in ("label", "idx")]
    columns = [rows[column] for column in (*text_columns, "label")]
    return [SequenceExample(texts[0], texts[1] if len(texts) > 1 else None, label) for *texts, label in zip(*columns, strict=True)]
