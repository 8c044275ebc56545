"""Weibo NER (Peng and Dredze 2015), whose words are characters with their place in the segmented word behind them: "现0"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlm_lab.evaluation.settings import Evaluation
from mlm_lab.evaluation.task import TaggedExample, TaskData
from mlm_lab.evaluation.tasks.ner import Ner


@dataclass(frozen=True, kw_only=True)
class Weibo(Ner):
    """Entities of one corpus, each character a word. The digit that ends each word of the file is no text."""

    def load(self, evaluation: Evaluation, cache_dir: Path) -> TaskData:
        data = super().load(evaluation, cache_dir)
        extra = {name: _without_places(part) for name, part in data.extra.items()}
        return replace(data, train=_without_places(data.train), dev=_without_places(data.dev), extra=extra)


def _without_places(examples: Sequence[TaggedExample]) -> list[TaggedExample]:
    return [example._replace(words=tuple(word[:-1] for word in example.words)) for example in examples]
