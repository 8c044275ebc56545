"""What a frozen encoder says linearly about each word of a corpus in CoNLL columns: its part of speech, or its entity."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.evaluation.conll import label_names, read_conll
from mlm_lab.evaluation.hash_order import first_by_hash
from mlm_lab.evaluation.measures.linear_probe import LinearProbe
from mlm_lab.evaluation.metrics import metric_names, score_tags
from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import Check, Task, TaskData
from mlm_lab.evaluation.tasks.ner import corpus_files

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer


@dataclass(frozen=True, kw_only=True)
class ConllProbe(Task):
    """A linear probe for the tags of one column: accuracy over words for plain tags, F1 over entities for tags with B- and I-.

    What is measured, and how the layer is chosen, says measures/linear_probe.py. It takes seconds, has one cell (nothing is drawn), and
    tells encoders apart long before fine-tuning does. On dev alone.
    """

    folder: str
    """Folder under evaluation.data_dir/ner/, or, with a slash in it, under evaluation.data_dir itself."""
    column: int | None
    """The tags' column, from 1, which is the words' (CoNLL-2003: 2 part of speech, 4 entity); null: the last one."""
    word_prefix: str
    """Taken off the front of every word (WikiANN writes "en:word")."""
    train_sentences: int | None
    """Training sentences at most, chosen by a hash, so that a larger number holds the smaller one's; null: all."""

    def pools(self, evaluation: Evaluation) -> bool:
        return False

    def checks(self) -> tuple[Check, ...]:
        return (
            *super().checks(),
            ("column", self.column, self.column is None or self.column >= 2, "at least 2, or null"),
            ("train_sentences", self.train_sentences, self.train_sentences is None or self.train_sentences >= 10, "at least 10, or null"),
        )

    def seeds(self, evaluation: Evaluation, first: int) -> Sequence[int]:
        return range(1)

    def check(self, evaluation: Evaluation) -> None:
        corpus_files(self.name, self.folder, evaluation)

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        parts = {
            part: read_conll(file, self.word_prefix, plain_tags=True, column=self.column)
            for part, file in corpus_files(self.name, self.folder, evaluation).items()
            if part in ("train", "dev")
        }
        names, train = label_names(*parts.values()), parts["train"]
        train = first_by_hash(train, self.train_sentences, "train", lambda example: repr(example.words))
        return TaskData("tagging", names, train, parts["dev"])

    def measure(self, data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int) -> LinearProbe:
        return LinearProbe(metric_names(self, data), data, evaluation, tokenizer, max_length)

    def baselines(self, data: TaskData) -> dict[str, dict[str, float | None]]:
        """word_lookup: the tag that a word has most often in training; the most frequent of all for a word that is not there."""
        seen: dict[str, Counter] = defaultdict(Counter)
        for example in data.train:
            for word, tag in zip(example.words, example.tags, strict=True):
                seen[word][tag] += 1
        most_frequent = sum(seen.values(), Counter()).most_common(1)[0][0]
        best = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
        predicted = [[best.get(word, most_frequent) for word in example.words] for example in data.dev]
        return {"word_lookup": score_tags(metric_names(self, data), [example.tags for example in data.dev], predicted)}
