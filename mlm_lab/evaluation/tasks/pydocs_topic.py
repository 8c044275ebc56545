"""pydocs_topic: which package is this docstring from, the names in it masked out?

    Compute the _ of the input _ along the given dimension.           -> torch

The classes are the packages with the most documentation, the standard library as one of them, each as frequent as the others. A word is
written `_` where it is a name by its look (dots, underscores, digits, capitals inside), the name of a class, or holds a package's name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from mlm_lab.errors import require
from mlm_lab.evaluation.baselines import sequence_baselines
from mlm_lab.evaluation.task import SequenceExample, TaskData
from mlm_lab.evaluation.tasks.pydocs_sentences import PydocsTask, digest, form

if TYPE_CHECKING:
    from mlm_lab.data.corpora.pydocs import Entry

WORDS = (8, 60)
"""Words of a docstring: shorter ones are left out, longer ones cut."""

WORD = re.compile(r"\w(?:[\w.]*\w)?|[^\w\s]")
NAME_LIKE = re.compile(r".*[_\d].*|.+\..+|.+[A-Z].*")
MASK = "_"


@dataclass(frozen=True, kw_only=True)
class PydocsTopic(PydocsTask):
    """Classify a docstring by the package that it is from."""

    packages: int
    """Classes: the packages with the most docstrings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(("packages", self.packages, self.packages >= 2, "at least 2"))

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy",)

    def build(self, entries: Sequence[Entry]) -> TaskData:
        packages = self._most_documented(entries)
        classes = {entry.qualname.rsplit(".", 1)[-1] for entry in entries if entry.kind == "class"}
        seen: set[str] = set()
        parts = []
        for split, size in (("train", self.train_examples), ("validation", self.dev_examples)):
            by_package: dict[str, list[str]] = {package: [] for package in packages}
            for entry in entries:
                if entry.split == split and entry.distribution in by_package:
                    text = mask_names(" ".join(entry.sentences), classes, packages)
                    if len(text.split()) >= WORDS[0] and (key := form(text)) not in seen:
                        seen.add(key)
                        by_package[entry.distribution].append(text)
            parts.append(self._balanced(by_package, size))
        return TaskData(
            kind="classification",
            label_names=tuple(packages),
            train=parts[0],
            dev=parts[1],
            notes=(self.note(*parts), "classes: " + ", ".join(packages)),
        )

    def baselines(self, data: TaskData) -> dict[str, dict[str, float]]:
        return sequence_baselines(data, self.metrics)

    def _most_documented(self, entries: Sequence[Entry]) -> list[str]:
        """The classes: by the rarer split, so that a package whose few modules all fall into one split is none."""
        counts = {split: Counter(entry.distribution for entry in entries if entry.split == split) for split in ("train", "validation")}
        ranked = sorted(counts["validation"], key=lambda package: (-counts["validation"][package], package))
        return sorted(package for package in ranked[: self.packages] if counts["train"][package])

    def _balanced(self, by_package: dict[str, list[str]], size: int) -> list[SequenceExample]:
        """As many of each class as of the rarest, in turn."""
        count = min(size // len(by_package), *map(len, by_package.values())) if by_package else 0
        columns = []
        for label, texts in enumerate(by_package.values()):
            drawn = sorted(texts, key=lambda text: digest(self.name, text))[:count]
            columns.append([SequenceExample(text, None, label) for text in drawn])
        return list(chain.from_iterable(zip(*columns, strict=True)))


def mask_names(text: str, classes: Collection[str], packages: Sequence[str]) -> str:
    """The first words of a docstring, cut at 60, names masked."""

    def mask(word: str) -> str:
        is_name = NAME_LIKE.fullmatch(word) or word in classes or any(package in word.lower() for package in packages)
        return MASK if is_name else word

    return " ".join(mask(word) for word in WORD.findall(text)[: WORDS[1]])
