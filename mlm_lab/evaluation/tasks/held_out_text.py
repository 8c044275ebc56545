"""Text that no encoder was pretrained on: how many bits each character of it takes. WikiText-2 (Merity et al. 2017), or your own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.data.sentences import split_paragraphs, split_sentences
from mlm_lab.errors import UserError
from mlm_lab.evaluation.files import find_file
from mlm_lab.evaluation.hash_order import first_by_hash
from mlm_lab.evaluation.hub_sets import check_hub_set
from mlm_lab.evaluation.measures.bits import BitsPerCharacter
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import Check, Task, TaskData, TextExample

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer

HUB, HUB_CONFIG, HUB_SPLIT = "Salesforce/wikitext", "wikitext-2-v1", "validation"
FOLDER, STEMS = "text/en-wikitext2", ("wiki.valid",)
UNKNOWN = "<unk>"
"""Stands in WikiText for a rare word."""
STOPS = ".!?…。！？।؟۔"
CLOSERS = "\"'”’»)]」』 "


@dataclass(frozen=True, kw_only=True)
class HeldOutText(Task):
    """Bits a character of whole sentences (measures/bits.py), each read by itself. Nothing is trained.

    Sentences that end with a stop, so no headings, and have no <unk>; different ones only. It is for the reader to see that the text is not
    in the training text: the overlap stands beside the score.
    """

    file: str | None
    """A file of your own: txt, jsonl, csv or parquet, also .gz. null: WikiText-2's validation part."""
    text_column: str
    """Column or key of the text in jsonl, csv and parquet files."""
    sentences: int | None
    """Sentences at most, chosen by a hash of their text; null: all."""
    characters: tuple[int, int]
    """Of a sentence, at least and at most."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "characters", tuple(self.characters))
        super().__post_init__()

    def checks(self) -> tuple[Check, ...]:
        bounds = self.characters
        return (
            *super().checks(),
            ("sentences", self.sentences, self.sentences is None or self.sentences >= 1, "at least 1, or null"),
            ("characters", list(bounds), len(bounds) == 2 and 1 <= bounds[0] <= bounds[-1], "[at least, at most], from 1 on"),
        )

    def pools(self, evaluation: Evaluation) -> bool:
        return False

    @property
    def reads_heads(self) -> bool:
        return True

    def seeds(self, evaluation: Evaluation, first: int) -> range:
        return range(1)

    def check(self, evaluation: Evaluation) -> None:
        if self.file is None and evaluation.data_dir is None:
            check_hub_set(self.name, HUB, HUB_CONFIG, "text", HUB_SPLIT, f"{FOLDER}/{STEMS[0]}.txt")
        else:
            next(self._records(evaluation), None)

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        self.check(evaluation)
        records = _from_hub() if self.file is None and evaluation.data_dir is None else self._records(evaluation)
        fewest, most = self.characters
        whole = dict.fromkeys(sentence for text in records for sentence in whole_sentences(text) if fewest <= len(sentence) <= most)
        if not whole:
            raise UserError(
                f"task {self.name}: there is no whole sentence of {fewest} to {most} characters",
                where=self.file or evaluation.data_dir or HUB,
                fix=f"give running text, or a wider task.{self.name}.characters",
            )
        chosen = first_by_hash(list(whole), self.sentences, "held_out_text", str)
        return TaskData("texts", (), (), [TextExample(sentence) for sentence in chosen])

    def measure(self, data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int) -> BitsPerCharacter:
        return BitsPerCharacter(data, tokenizer, max_length)

    def _records(self, evaluation: Evaluation) -> Iterator[str]:
        from mlm_lab.data.text_files import read_records

        for record in read_records(self._file(evaluation), self.text_column, "utf-8"):
            yield record.text

    def _file(self, evaluation: Evaluation) -> Path:
        from mlm_lab.data.text_files import kind_of

        if self.file is not None:
            path = Path(self.file).expanduser()
            if not path.is_file() or kind_of(path) is None:
                raise UserError(
                    f"task {self.name}: there is no such file",
                    given=f"task.{self.name}.file={self.file}",
                    allowed="a file that ends in txt, jsonl, csv or parquet, also .gz",
                )
            return path
        folder = Path(evaluation.data_dir).expanduser() / FOLDER
        if (found := find_file(folder, STEMS, (".txt",))) is None:
            raise UserError(
                f"task {self.name}: there is no text",
                where=str(folder),
                given=f"evaluation.data_dir={evaluation.data_dir}",
                allowed=f"{STEMS[0]}.txt, also .gz",
                fix=f"a file of your own, task.{self.name}.file=PATH, or evaluation.data_dir=null for the hub",
            )
        return found


def whole_sentences(text: str) -> Iterator[str]:
    """The sentences of a document that end with a stop and hide no word."""
    for paragraph in split_paragraphs(text):
        for sentence in split_sentences(paragraph):
            if sentence.rstrip(CLOSERS).endswith(tuple(STOPS)) and UNKNOWN not in sentence:
                yield sentence


def _from_hub() -> Iterator[str]:
    from datasets import load_dataset

    yield from load_dataset(HUB, HUB_CONFIG, split=HUB_SPLIT)["text"]
