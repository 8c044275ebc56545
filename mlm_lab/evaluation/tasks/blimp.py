"""BLiMP (Warstadt et al. 2020): of two sentences that differ in one thing, does the pretrained model find the grammatical one more likely?

Files evaluation.data_dir/blimp/PARADIGM.jsonl(.gz), as many as there are, or all 67 from the hub. Nothing is trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mlm_lab.errors import UserError
from mlm_lab.evaluation.files import read_lines
from mlm_lab.evaluation.hash_order import first_by_hash
from mlm_lab.evaluation.hub_sets import check_hub_set
from mlm_lab.evaluation.measures.minimal_pairs import MinimalPairs, accuracies, metrics_of, preferred
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import Check, PairExample, ScoredTask, TaskData
from mlm_lab.objectives.sentence_scores import RULES

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer

HUB = "nyu-mll/blimp"
FILES = "blimp/PARADIGM.jsonl"
SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True, kw_only=True)
class Blimp(ScoredTask):
    """Accuracy over minimal pairs, the mean of the paradigms, for each rule by which the objective's model scores a sentence
    (objectives/sentence_scores.py). `accuracy` is that of the pseudo-log-likelihood; other rules have columns of their own, since scores
    of different objectives are not compared.

    Small models are moved by length and word frequency as much as by grammar: read it by paradigm (result.json, or `by_paradigm`),
    beside the baseline `shorter` and the random start.
    """

    pairs: int | None
    """Pairs of each paradigm at most, chosen by a hash of their text; null: all (1000)."""
    by_paradigm: bool
    """Whether each paradigm is a metric of its own too: PARADIGM/accuracy, PARADIGM/RULE/accuracy."""

    ADDED: ClassVar[Mapping[str, object]] = {"by_paradigm": False}

    def checks(self) -> tuple[Check, ...]:
        return (*super().checks(), ("pairs", self.pairs, self.pairs is None or self.pairs >= 1, "at least 1, or null"))

    def check(self, evaluation: Evaluation) -> None:
        if evaluation.data_dir is None:
            check_hub_set(self.name, HUB, "causative", "sentence_good", "train", FILES)
        else:
            self._files(evaluation.data_dir)

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        self.check(evaluation)
        paradigms = _from_hub() if evaluation.data_dir is None else map(read_pairs, self._files(evaluation.data_dir))
        pairs = [pair for found in paradigms for pair in first_by_hash(found, self.pairs, "pairs", lambda pair: f"{pair.good}\n{pair.bad}")]
        return TaskData("pairs", (), (), pairs)

    def measure(self, data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int) -> MinimalPairs:
        return MinimalPairs(data, tokenizer, max_length, self.by_paradigm)

    def baselines(self, data: TaskData) -> dict[str, dict[str, float | None]]:
        """shorter: the sentence of fewer characters; half a point where both have as many."""
        good, bad = (np.array([-len(getattr(pair, side)) for pair in data.dev]) for side in ("good", "bad"))
        found = accuracies(data.dev, preferred(good, bad))
        return {"shorter": metrics_of(dict.fromkeys(RULES, found), self.by_paradigm)}

    def _files(self, data_dir: str) -> list[Path]:
        folder = Path(data_dir).expanduser() / "blimp"
        files = sorted(file for suffix in SUFFIXES for file in folder.glob(f"*{suffix}"))
        if not files:
            raise UserError(
                f"task {self.name}: there are no minimal pairs",
                where=str(folder),
                given=f"evaluation.data_dir={data_dir}",
                allowed=f"{FILES}, also .gz",
                fix="put the files of BLiMP's data folder there, or evaluation.data_dir=null for the hub",
            )
        return files


def read_pairs(file: Path) -> list[PairExample]:
    """The pairs of one paradigm's file.

    Raises:
        UserError: a line that is no JSON object with both sentences, or no line at all.
    """
    pairs = []
    for number, line in read_lines(file):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            pairs.append(PairExample(row["sentence_good"], row["sentence_bad"], row["UID"]))
        except (ValueError, KeyError, TypeError):
            allowed = "a JSON object with sentence_good, sentence_bad and UID"
            raise UserError("the line is no minimal pair", where=f"{file}, line {number}", given=line[:80], allowed=allowed) from None
    if not pairs:
        raise UserError("the file has no examples", where=str(file))
    return pairs


def _from_hub() -> Iterator[list[PairExample]]:
    from datasets import get_dataset_config_names, load_dataset

    for paradigm in sorted(get_dataset_config_names(HUB)):
        rows = load_dataset(HUB, paradigm, split="train")
        yield [PairExample(*row) for row in zip(rows["sentence_good"], rows["sentence_bad"], rows["UID"], strict=True)]
