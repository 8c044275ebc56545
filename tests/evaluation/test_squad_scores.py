"""SQuAD's rules against an independent implementation, and the best threshold against every threshold tried."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from torchmetrics.functional.text import squad

from mlm_lab.evaluation.squad_scores import best_threshold, normalise, score_answer

PREDICTIONS = ["", "the", "The Paris!", "in Paris", "paris.  France", "a  1,000-year war", "1000year war", "Zürich", "an"]
GOLDS = [(), ("Paris",), ("in Paris, France", "Paris"), ("1,000-year war",), ("Zürich", "the Zürich"), ("war war",)]


@pytest.mark.parametrize("gold", GOLDS)
@pytest.mark.parametrize("predicted", PREDICTIONS)
def test_equal_to_torchmetrics(gold, predicted):
    target = [{"answers": {"answer_start": [0] * max(len(gold), 1), "text": list(gold) or [""]}, "id": "0"}]
    expected = squad([{"prediction_text": predicted, "id": "0"}], target)
    exact, f1 = score_answer(gold, predicted)
    assert (100 * exact, 100 * f1) == (pytest.approx(float(expected["exact_match"])), pytest.approx(float(expected["f1"])))


def test_what_is_left_out_of_an_answer():
    assert normalise("  The  U.S.A., an (old) état-major. ") == "usa old étatmajor"
    assert score_answer(("a",), "") == (1.0, 1.0)  # an article alone is no answer, and "" is right
    assert score_answer(("a", "Paris"), "") == (0.0, 0.0)  # but beside another it does not count
    assert score_answer(("word word other",), "word") == (0.0, 0.5)


def test_equal_to_torchmetrics_on_real_questions(shared_data):
    with gzip.open(shared_data / "squad2/dev-sub.json.gz") as file:
        paragraphs = [paragraph for article in json.load(file)["data"] for paragraph in article["paragraphs"]]
    questions = [question for paragraph in paragraphs for question in paragraph["qas"]]
    generator = np.random.default_rng(0)
    golds = [tuple(answer["text"] for answer in question["answers"]) for question in questions]
    words = " ".join(paragraphs[0]["context"].split()[:200]).split()
    predicted = [
        generator.choice(["", " ".join(words[i : i + 3]), *gold, *(f"the {answer}" for answer in gold), *(answer[:-3] for answer in gold)])
        for gold, i in zip(golds, generator.integers(0, 197, len(golds)), strict=True)
    ]
    target = [{"answers": {"answer_start": [0], "text": list(gold) or [""]}, "id": str(i)} for i, gold in enumerate(golds)]
    expected = squad([{"prediction_text": str(text), "id": str(i)} for i, text in enumerate(predicted)], target)
    ours = 100 * np.array([score_answer(gold, str(text)) for gold, text in zip(golds, predicted, strict=True)]).mean(axis=0)
    assert 20 < ours[0] < 80 and ours == pytest.approx([float(expected["exact_match"]), float(expected["f1"])], abs=1e-3)


@pytest.mark.parametrize("distinct", [200, 5])
def test_the_best_threshold_is_the_best_of_all(distinct):
    generator = np.random.default_rng(distinct)
    answered, unanswered = generator.random(200).round(2), (generator.random(200) < 0.4).astype(float)
    odds = generator.integers(0, distinct, 200) * 0.37 - 10
    scores = {t: np.where(odds <= t, answered, unanswered).mean() for t in (-np.inf, *odds)}
    best, threshold = best_threshold(answered, unanswered, odds)
    assert best == pytest.approx(max(scores.values())) and scores[threshold] == pytest.approx(best)


def test_answering_nothing_may_be_best():
    assert best_threshold(np.zeros(3), np.ones(3), np.arange(3.0)) == (1.0, -np.inf)
