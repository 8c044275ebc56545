"""SQuAD's scores by the rules of the official script for version 2.0: exact match, F1 over words, and both at the best threshold.

Answers are compared in lower case, without punctuation, without a, an, the, with single spaces. A question counts with the gold answer that
fits best; where there is none, the only right answer is "" (Rajpurkar et al. 2018, and evaluate-v2.0.py).
Own code: torchmetrics has version 1.1, where every question has an answer.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def score_answer(gold: Sequence[str], predicted: str) -> tuple[float, float]:
    """(exact, F1) of one question. gold: its answers; (): it has none. Gold answers of which nothing is left (an article alone) do not
    count, as in the official script."""
    golds = [answer for answer in gold if normalise(answer)] or [""]
    return max(float(normalise(answer) == normalise(predicted)) for answer in golds), max(_f1(answer, predicted) for answer in golds)


def _f1(gold: str, predicted: str) -> float:
    gold_words, words = normalise(gold).split(), normalise(predicted).split()
    if not gold_words or not words:
        return float(gold_words == words)
    shared = sum((Counter(gold_words) & Counter(words)).values())
    return 2 * shared / (len(gold_words) + len(words))


def best_threshold(answered: np.ndarray, unanswered: np.ndarray, odds: np.ndarray) -> tuple[float, float]:
    """The best mean score, and the threshold of it, where a question is answered if its odds of having no answer are at most the threshold.
    It is chosen on the questions it is reported on: an upper bound.

    Args:
        answered: (N,) score of each question if it is answered; unanswered: if it is not.
        odds: (N,) higher where no answer is likelier.
    """
    order = np.argsort(odds, kind="stable")
    totals = unanswered.sum() + np.cumsum((answered - unanswered)[order])
    last = np.append(odds[order][1:] != odds[order][:-1], True)  # of questions with equal odds all are answered or none
    thresholds, totals = np.append(-np.inf, odds[order][last]), np.append(unanswered.sum(), totals[last])
    best = int(totals.argmax())
    return float(totals[best] / len(odds)), float(thresholds[best])
