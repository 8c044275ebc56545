"""Text that is to be predicted: how many bits each character of it takes. WikiText-2 (Merity et al. 2017), or your own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from mlm_lab.evaluation.task import Check, ScoredTask, TaskData, TextExample

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer

HUB, HUB_CONFIG, HUB_SPLIT = "Salesforce/wikitext", "wikitext-2-raw-v1", "validation"
FOLDER, STEMS = "text/en-wikitext2", ("wiki.valid",)
UNKNOWN = "<unk>"
"""Stands in WikiText, but for its raw form, for a rare word."""


@dataclass(frozen=True, kw_only=True)
class HeldOutText(ScoredTask):
    """Bits a character of whole sentences (measures/bits.py), each read by itself.

    Sentences that end with a stop, so no headings, whose quotation marks close, and without <unk>; different ones only. That the text was
    not in the training text is the user's to see to: the overlap is counted where the training text is at hand. WikiText comes with spaces
    around its marks, which suits vocabularies that drop white space: to compare others, give text as people write it.
    """

    file: str | None
    """A file of your own in UTF-8: txt, jsonl, csv or parquet, also .gz. null: WikiText-2's validation part."""
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

    @property
    def ranked_within(self) -> tuple[str, ...]:
        return (*super().ranked_within, "tokenizer.lowercase")

    def check(self, evaluation: Evaluation) -> None:
        """Read a file to its end: what is wrong with it is better known before pretraining than after it."""
        if self._on_hub(evaluation):
            check_hub_set(self.name, HUB, HUB_CONFIG, "text", HUB_SPLIT, f"{FOLDER}/{STEMS[0]}.txt")
        else:
            self._chosen(self._records(evaluation))

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        records = _from_hub() if self._on_hub(evaluation) else self._records(evaluation)
        return TaskData("texts", (), (), [TextExample(sentence) for sentence in self._chosen(records)])

    def measure(self, data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int) -> BitsPerCharacter:
        return BitsPerCharacter(data, tokenizer, max_length)

    def _on_hub(self, evaluation: Evaluation) -> bool:
        return self.file is None and evaluation.data_dir is None

    def _chosen(self, records: Iterable[str]) -> list[str]:
        fewest, most = self.characters
        whole = dict.fromkeys(sentence for text in records for sentence in whole_sentences(text) if fewest <= len(sentence) <= most)
        if not whole:
            raise UserError(
                f"task {self.name}: the text has no whole sentence of {fewest} to {most} characters",
                given=f"task.{self.name}.file={self.file}" if self.file else None,
                fix=f"give running text, or a wider task.{self.name}.characters",
            )
        return first_by_hash(list(whole), self.sentences, "held_out_text", str)

    def _records(self, evaluation: Evaluation) -> Iterator[str]:
        from mlm_lab.data.text_files import read_records

        file = self._file(evaluation)
        try:
            for record in read_records(file, self.text_column, "utf-8"):
                yield record.text
        except UserError as error:  # the reader's advice is about data=text
            raise UserError(
                f"task {self.name}: {error.problem}",
                where=error.where,
                given=error.given,
                allowed=f"UTF-8, with the text in task.{self.name}.text_column where there are columns",
            ) from None

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
    """The sentences of a document that end with a stop, in which quotation marks close and no word is hidden."""
    for paragraph in split_paragraphs(text):
        for sentence in split_sentences(paragraph):
            ends = len(split_sentences(f"{sentence} The")) > 1  # whatever stops are, in whichever script: "The" would begin another
            if ends and sentence.count('"') % 2 == 0 and UNKNOWN not in sentence:
                yield sentence


def _from_hub() -> Iterator[str]:
    from datasets import load_dataset

    yield from load_dataset(HUB, HUB_CONFIG, split=HUB_SPLIT)["text"]
