"""Minimal pairs: which of two sentences a pretrained model scores higher, by each rule that it can be judged by.

pairs -> different sentences -> tokens -> score_texts -> rule -> accuracy of each paradigm, mean
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.evaluation.measures.measure import Outcome, Subject
from mlm_lab.evaluation.measures.sentence_scoring import UNDEFINED, score_texts
from mlm_lab.evaluation.task import PairExample, TaskData

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer

MAIN_RULE = "pll"
"""The one that is called `accuracy`; another stands beside it as RULE/accuracy."""
NOTE = "scores of different objectives, or by different rules, are not compared; small models go by length and frequency too"


def metric_of(rule: str) -> str:
    return "accuracy" if rule == MAIN_RULE else f"{rule}/accuracy"


def metrics_of(paradigms: Mapping[str, Mapping[str, float]], by_paradigm: bool) -> dict[str, float]:
    """The mean of the paradigms by each rule and, if asked, each paradigm's own accuracy. paradigms: rule -> paradigm -> accuracy."""
    metrics = {metric_of(rule): fmean(of_rule.values()) for rule, of_rule in paradigms.items()}
    if by_paradigm:
        metrics |= {f"{name}/{metric_of(rule)}": value for rule, of_rule in paradigms.items() for name, value in of_rule.items()}
    return metrics


class MinimalPairs:
    """Satisfies `Measure`."""

    def __init__(self, data: TaskData, tokenizer: LoadedTokenizer, max_length: int, by_paradigm: bool = False):
        self.by_paradigm = by_paradigm
        self.pairs: Sequence[PairExample] = data.dev
        self.sentences = sorted({sentence for pair in self.pairs for sentence in (pair.good, pair.bad)})
        ids, starts, lengths = tokenizer.encode_batch(self.sentences)
        ends, kept = np.cumsum(lengths), np.minimum(lengths, max_length - 2)
        self.truncated = int((lengths > kept).sum())
        self.ids, self.starts = (
            [of_all[end - n : end - n + k] for end, n, k in zip(ends, lengths, kept, strict=True)] for of_all in (ids, starts)
        )

    def settings(self, subject: Subject) -> dict:
        return {}

    def __call__(self, subject: Subject, seed: int) -> Outcome:
        scores = score_texts(subject, self.ids, self.starts)
        facts = {"examples": {"dev": len(self.pairs)}, "truncated": {"dev": self.truncated}}
        if not scores:
            return Outcome({metric_of(MAIN_RULE): None}, [], facts=facts | {"notes": [UNDEFINED]})
        number = {sentence: i for i, sentence in enumerate(self.sentences)}
        good, bad = ([number[getattr(pair, side)] for pair in self.pairs] for side in ("good", "bad"))
        right = {rule: preferred(values[good], values[bad]) for rule, values in scores.items()}
        paradigms = {rule: accuracies(self.pairs, of_rule) for rule, of_rule in right.items()}
        main = next(iter(scores))
        lines = [
            {
                "part": "dev",
                "index": index,
                "paradigm": pair.paradigm,
                "gold": "good",
                "prediction": {1.0: "good", 0.5: "equal", 0.0: "bad"}[float(right[main][index])],
                "scores": {rule: [round(float(values[i]), 4) for i in (good[index], bad[index])] for rule, values in scores.items()},
            }
            for index, pair in enumerate(self.pairs)
        ]
        facts |= {"equal_pairs": int((right[main] == 0.5).sum()), "paradigms": paradigms, "notes": [NOTE]}
        return Outcome(metrics_of(paradigms, self.by_paradigm), lines, facts=facts)


def preferred(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """(pairs,): 1 where the good sentence has the higher score, 1/2 where both have the same one (pairs that the tokenizer cannot tell
    apart; BLiMP's own script counts them as wrong), else 0."""
    return (good > bad) + 0.5 * (good == bad)


def accuracies(pairs: Sequence[PairExample], right: Sequence[float]) -> dict[str, float]:
    """paradigm -> accuracy."""
    found: dict[str, list[float]] = defaultdict(list)
    for pair, value in zip(pairs, right, strict=True):
        found[pair.paradigm].append(float(value))
    return {paradigm: fmean(values) for paradigm, values in sorted(found.items())}
