"""Bits a character: how well a pretrained model predicts held-out sentences, by each rule that gives their tokens probabilities.

    sentences -> tokens, cut where a row is full -> score_texts -> rule -> -sum of log2 p / characters

Over characters, not tokens, so that vocabularies can be compared (Mielke et al. 2019); the sum over the sum, never a mean of sentences. Of
masked models the number is the pseudo-log-likelihood's (Salazar et al. 2020), which is no code length: each token is predicted from both
sides. The inputs have [MASK] where a token is asked for and nothing else that is corrupted, whatever the mix of the arm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.evaluation.measures.measure import Outcome, Subject
from mlm_lab.evaluation.measures.minimal_pairs import UNDEFINED
from mlm_lab.evaluation.measures.sentence_scoring import score_texts
from mlm_lab.evaluation.task import TaskData

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer

METRIC = "bits_per_character"
MAIN_RULE = "pll_within_word"
"""The one that is called METRIC; another stands beside it as RULE/METRIC. By plain pll a rare word of several tokens gives itself away, so
that a vocabulary of small pieces would seem the better one."""
NO_PROBABILITY = ("replaced",)
"""Rules whose scores are no probabilities of the tokens."""
NOTE = "bits of different objectives, or by different rules, are not compared; nor those of a vocabulary that lowers case with another's"


def metric_of(rule: str) -> str:
    return METRIC if rule == MAIN_RULE else f"{rule}/{METRIC}"


class BitsPerCharacter:
    """Satisfies `Measure`."""

    def __init__(self, data: TaskData, tokenizer: LoadedTokenizer, max_length: int):
        self.texts = [example.text for example in data.dev]
        ids, starts, lengths = tokenizer.encode_batch(self.texts)
        self.unknown = int((ids == tokenizer.vocabulary.unk_id).sum())
        self.tokens = len(ids)
        ends = np.cumsum(lengths)
        cuts = [range(end - n, end, max_length - 2) for end, n in zip(ends, lengths, strict=True)]
        self.owners = np.repeat(np.arange(len(cuts)), [len(of_text) for of_text in cuts])
        pieces = [slice(at, min(at + max_length - 2, end)) for of_text, end in zip(cuts, ends, strict=True) for at in of_text]
        self.ids, self.starts = [ids[piece] for piece in pieces], [starts[piece] for piece in pieces]

    def settings(self, subject: Subject) -> dict:
        return {}

    def __call__(self, subject: Subject, seed: int) -> Outcome:
        scores = {rule: values for rule, values in score_texts(subject, self.ids, self.starts).items() if rule not in NO_PROBABILITY}
        characters = sum(map(len, self.texts))
        facts = {
            "examples": {"dev": len(self.texts)},
            "characters": characters,
            "tokens": self.tokens,
            "unknown_tokens": self.unknown,
            "cut": {"dev": len(self.ids) - len(self.texts)},
        }
        if not scores:
            return Outcome({METRIC: None}, [], facts=facts | {"notes": [UNDEFINED]})
        bits = {rule: np.bincount(self.owners, -values / math.log(2), len(self.texts)) for rule, values in scores.items()}
        lines = [
            {
                "part": "dev",
                "index": index,
                "gold": text,
                "prediction": {rule: round(float(of_rule[index]), 3) for rule, of_rule in bits.items()},
            }
            for index, text in enumerate(self.texts)
        ]
        notes = [NOTE]
        if self.unknown:
            notes.append(f"{self.unknown:,} of {self.tokens:,} tokens are unknown to the vocabulary: their characters are not predicted")
        metrics = {metric_of(rule): float(of_rule.sum()) / characters for rule, of_rule in bits.items()}
        return Outcome(metrics, lines, facts=facts | {"notes": notes})
