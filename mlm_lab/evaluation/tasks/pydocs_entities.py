"""pydocs_entities: which words of a docstring's sentence name a module, a class, a function or a parameter?

    Passes axis and dtype on to numpy.asarray() of the MaskedArray .
           B-PARAMETER B-PARAMETER    B-FUNCTION      B-CLASS

No annotator and no rule on how a word looks: a word has a tag where the source says that the name exists. A parameter is one of the
function that the docstring belongs to; a class or a function is defined in the same top-level package, or written out with its module;
a module exists. A word that packages use without having such a name (`get`, `name`, `Return`) is ordinary and never tagged.

No name of a dev sentence occurs in a training sentence, tagged or not: an encoder has to go by context and by the parts of a word.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mlm_lab.evaluation.baselines import shape_rule_baseline
from mlm_lab.evaluation.task import TaggedExample, TaskData
from mlm_lab.evaluation.tasks.pydocs_sentences import PydocsTask, Sentence, sentences_by_split

if TYPE_CHECKING:
    from mlm_lab.data.corpora.pydocs import Entry
    from mlm_lab.evaluation.settings import Evaluation

TYPES = ("MODULE", "CLASS", "FUNCTION", "PARAMETER")
WORDS = (4, 40)
"""Words of a sentence, at least and at most."""
ORDINARY_PACKAGES = 4
"""A word that so many top-level packages use without having it as a name is an ordinary word."""

WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?|[^\W_]+|\S")
"""A word: a name with its dots and an empty pair of brackets, a number, or one other character."""


@dataclass(frozen=True, kw_only=True)
class PydocsEntities(PydocsTask):
    """Tag the names of modules, classes, functions and parameters in sentences of docstrings; dev names are unseen in training."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("f1", "precision", "recall")

    def pools(self, evaluation: Evaluation) -> bool:
        return False

    def build(self, entries: Sequence[Entry]) -> TaskData:
        names = Names(entries)
        train, dev = sentences_by_split(entries, self.name)
        dev_part = list(islice(_examples(dev, names), self.dev_examples))
        dev_names = {name for example in dev_part for name in named(example)}
        unseen = (example for example in _examples(train, names) if dev_names.isdisjoint(map(bare, example.words)))
        train_part = list(islice(unseen, self.train_examples))
        tags = ("O", *(f"B-{type_}" for type_ in TYPES))
        note = f"{self.note(train_part, dev_part)}; none of the {len(dev_names)} dev names occurs in training"
        return TaskData(kind="tagging", label_names=tags, train=train_part, dev=dev_part, notes=(note,))

    def baselines(self, data: TaskData) -> dict[str, dict[str, float]]:
        return shape_rule_baseline(data, self.metrics)


class Names:
    """What exists by which name, read from the entries; and which words are too ordinary to be taken for a name."""

    def __init__(self, entries: Iterable[Entry]):
        entries = list(entries)
        self.modules = {
            ".".join(parts[:depth]) for entry in entries for parts in [entry.module.split(".")] for depth in range(1, len(parts) + 1)
        }
        self.kinds: dict[str, dict[str, str]] = defaultdict(dict)
        """top-level package -> name or dotted name -> CLASS or FUNCTION"""
        known: dict[str, set[str]] = defaultdict(set)
        used: dict[str, set[str]] = defaultdict(set)
        for entry in entries:
            package = entry.package
            known[package].update(entry.parameters)
            used[package].update(bare(word) for sentence in entry.sentences for word in WORD.findall(sentence))
            if entry.kind in ("class", "function"):
                kind, name = entry.kind.upper(), entry.qualname.rsplit(".", 1)[-1]
                for form in (name, entry.qualname, f"{entry.module}.{entry.qualname}"):
                    if self.kinds[package].get(form) != "CLASS":
                        self.kinds[package][form] = kind
        uses = Counter(word for package, words in used.items() for word in words - known[package] - self.kinds[package].keys())
        self.ordinary = {word for word, packages in uses.items() if packages >= ORDINARY_PACKAGES}

    def tag(self, word: str, entry: Entry) -> str:
        """The tag of a word in a docstring of the entry."""
        name = bare(word)
        if name in self.ordinary and "." not in name:
            return "O"
        if name in entry.parameters:
            return "B-PARAMETER"
        kind = self.kinds[entry.package].get(name) or self.kinds.get(name.split(".")[0], {}).get(name if "." in name else "")
        if kind is None and name in self.modules:
            kind = "MODULE"
        return f"B-{kind}" if kind else "O"


def bare(word: str) -> str:
    """A word without the brackets of a call."""
    return word.removesuffix("()")


def named(example: TaggedExample) -> list[str]:
    """The names that an example tags."""
    return [bare(word) for word, tag in zip(example.words, example.tags, strict=True) if tag != "O"]


def _examples(sentences: Iterable[Sentence], names: Names) -> Iterator[TaggedExample]:
    """Those sentences that name something."""
    for sentence in sentences:
        words = tuple(WORD.findall(sentence.text))
        if WORDS[0] <= len(words) <= WORDS[1]:
            example = TaggedExample(words, tuple(names.tag(word, sentence.entry) for word in words))
            if named(example):
                yield example
