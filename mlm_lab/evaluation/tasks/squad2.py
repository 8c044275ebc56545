"""SQuAD 2.0 (Rajpurkar et al. 2018): answer a question by a span of the text, or say that the text has no answer."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.errors import UserError
from mlm_lab.evaluation.files import find_file
from mlm_lab.evaluation.hub_sets import check_hub_set
from mlm_lab.evaluation.measures.question_answering import Answer, QuestionAnswering, score_answers
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import AnsweredExample, Check, FineTunedTask, TaskData

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer

HUB = "rajpurkar/squad_v2"
FILES = "squad2/train*.json and squad2/dev*.json"


@dataclass(frozen=True, kw_only=True)
class Squad2(FineTunedTask):
    """f1 and exact by the official rules, with "no answer" where it scores above every span; best_f1 and best_exact at the threshold that
    is best on dev itself, as the official script reports them."""

    max_question: int
    """Tokens of a question; longer ones are cut and counted (BERT: 64)."""
    stride: int
    """Tokens between the starts of two windows of a text that is longer than a row (BERT: 128)."""
    max_answer: int
    """Tokens of an answer at most (BERT: 30)."""

    def pools(self, evaluation: Evaluation) -> bool:
        return False

    def checks(self) -> tuple[Check, ...]:
        return (
            *super().checks(),
            ("max_question", self.max_question, self.max_question >= 1, "at least 1"),
            ("stride", self.stride, self.stride >= 1, "at least 1"),
            ("max_answer", self.max_answer, self.max_answer >= 1, "at least 1"),
        )

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("f1", "exact", "best_f1", "best_exact")

    def check(self, evaluation: Evaluation) -> None:
        if evaluation.data_dir is None:
            check_hub_set(self.name, HUB, None, "question", "train", FILES)
        else:
            self._files(evaluation.data_dir)

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        self.check(evaluation)
        if evaluation.data_dir is None:
            from datasets import load_dataset

            sets = load_dataset(HUB)
            parts = {part: [_from_row(row) for row in sets[split]] for part, split in (("train", "train"), ("dev", "validation"))}
        else:
            parts = {part: list(read_questions(file)) for part, file in self._files(evaluation.data_dir).items()}
        return TaskData("answers", (), parts["train"], parts["dev"])

    def measure(self, data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int) -> QuestionAnswering:
        return QuestionAnswering(self, data, evaluation, tokenizer, max_length)

    def baselines(self, data: TaskData) -> dict[str, dict[str, float | None]]:
        """no_answer: "" to every question."""
        return {"no_answer": score_answers(data.dev, [Answer("", np.inf)] * len(data.dev))[0]}

    def _files(self, data_dir: str) -> dict[str, Path]:
        folder = Path(data_dir).expanduser() / "squad2"
        files = {part: find_file(folder, [f"{part}*"], [".json"]) for part in ("train", "dev")}
        for part, file in files.items():
            if file is None:
                raise UserError(
                    f"task {self.name}: the {part} file is missing",
                    where=str(folder),
                    given=f"evaluation.data_dir={data_dir}",
                    allowed=f"{part}*.json, also .gz",
                    fix="put the official SQuAD 2.0 files there, or evaluation.data_dir=null for the hub",
                )
        return files


def read_questions(file: Path) -> Iterator[AnsweredExample]:
    """The questions of a file in SQuAD's form, in its order.

    Raises:
        UserError: no such JSON, a key is missing, or an answer is not where the file says.
    """
    opener = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rb") as stream:
            articles = json.load(stream)["data"]
        paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
        examples = [
            AnsweredExample(
                paragraph["context"],
                question["question"],
                tuple(answer["text"] for answer in question["answers"]),
                question["answers"][0]["answer_start"] if question["answers"] else 0,
                str(question["id"]),
            )
            for paragraph in paragraphs
            for question in paragraph["qas"]
        ]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"the gzip file is damaged or cut short: {error}", where=str(file)) from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError("the file is not in SQuAD's form", where=str(file), given=f"{type(error).__name__}: {error}") from error
    if not examples:
        raise UserError("the file has no questions", where=str(file))
    for example in examples:
        if example.answers and example.context[example.start : example.start + len(example.answers[0])] != example.answers[0]:
            raise UserError(
                "an answer is not where the file says",
                where=f"{file}, question {example.id}",
                given=f"{example.answers[0][:60]!r} at {example.start}",
            )
        yield example


def _from_row(row: dict) -> AnsweredExample:
    answers = row["answers"]
    start = answers["answer_start"][0] if answers["text"] else 0
    return AnsweredExample(row["context"], row["question"], tuple(answers["text"]), start, row["id"])
