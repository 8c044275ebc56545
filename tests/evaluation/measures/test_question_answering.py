"""SQuAD 2.0: windows that hold every token and every answer, the best span, what is learnt from a few questions, and files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric

from mlm_lab.errors import UserError
from mlm_lab.evaluation.finetune import FineTuned
from mlm_lab.evaluation.measures.measure import Subject
from mlm_lab.evaluation.measures.question_answering import Answer, QuestionAnswering, best_span, score_answers
from mlm_lab.evaluation.task import AnsweredExample, TaskData
from mlm_lab.evaluation.tasks.squad2 import read_questions
from mlm_lab.evaluation.windows import encode_questions, window_bounds
from tests.evaluation.protocol import evaluation, task
from tests.evaluation.test_finetune import recipe


def example(context: str, answer: str | None, question: str = "good film", number: int = 0) -> AnsweredExample:
    return AnsweredExample(context, question, () if answer is None else (answer,), context.index(answer) if answer else 0, str(number))


def test_windows_cover_a_text_and_overlap():
    assert window_bounds(10, 4, 3) == [(0, 4), (3, 7), (6, 10)]
    assert window_bounds(10, 4, 9) == [(0, 4), (4, 8), (8, 10)]  # a stride beyond the row would leave tokens out
    assert window_bounds(4, 4, 3) == [(0, 4)] and window_bounds(0, 4, 3) == [(0, 0)]


@pytest.mark.parametrize(("max_length", "stride"), [(64, 16), (16, 4)])
def test_labels_point_at_the_answer(tokenizer, max_length, stride):
    context = "the film is good . anna is in berlin , xyz is bad"
    for answer in ("anna", "berlin , xyz", "bad", "the film", "."):
        windows = encode_questions([example(context, answer)], tokenizer, max_length, 4, stride)
        found = 0
        for window, (first, last) in enumerate(windows.labels):
            batch = windows.batch(np.array([window]), pad_id=0)
            assert batch["answerable"][0, first] and batch["answerable"][0, last]
            assert batch["token_type_ids"][0].sum() == len(windows.spans[window]) + 1
            if first:
                spans = windows.spans[window][[first - windows.first_segment[window], last - windows.first_segment[window]]]
                assert context[spans[0, 0] : spans[1, 1]] == answer
                found += 1
        assert found >= 1
    assert (encode_questions([example(context, None)], tokenizer, max_length, 4, stride).labels == 0).all()


def test_answerable_places_are_the_text_and_place_0(tokenizer):
    windows = encode_questions([example("the film", None), example("the", None, "is bad is bad is")], tokenizer, 16, 4, 8)
    answerable = windows.batch(np.array([0, 1]), pad_id=0)["answerable"]
    assert answerable.astype(int).tolist() == [[1, 0, 0, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0, 1, 0]]
    assert windows.truncated == 1


@pytest.mark.parametrize("longest", [1, 3, 30])
def test_the_best_span_is_the_best_of_all(longest):
    generator = np.random.default_rng(longest)
    for places in (1, 2, 9):
        begins, ends = generator.normal(size=(2, places))
        every = {(i, j): begins[i] + ends[j] for i in range(places) for j in range(i, min(i + longest, places))}
        score, *span = best_span(begins, ends, longest)
        assert score == pytest.approx(max(every.values())) and every[tuple(span)] == pytest.approx(score)


def test_scores_with_and_without_the_best_threshold():
    examples = [example("the film", "film"), example("the film", "the film"), example("the film", None), example("the film", None)]
    answers = [Answer("film", -2.0), Answer("film", 1.0), Answer("film", 2.0), Answer("film", -1.0)]
    metrics, facts = score_answers(examples, answers)
    assert metrics == {"f1": 0.5, "exact": 0.5, "best_f1": 0.75, "best_exact": 0.75}
    assert facts["answerable"] == {"questions": 2, "exact": 0.5, "f1": 0.5} and facts["thresholds"]["best_exact"] in (-2.0, 1.0)


@pytest.mark.parametrize("causal", [False, True])
def test_no_answer_is_said_where_everything_has_been_seen(encoder_config, vocabulary, tokenizer, causal):
    """A left-to-right encoder's first place has seen nothing, so its last one stands for "no answer"."""
    model = FineTuned(encoder_config.build(vocabulary, causal=causal), "answers", 0, recipe()).eval()
    windows = encode_questions([example("the film is good", None), example("the film is bad", None)], tokenizer, 24, 4, 8)
    batch = {name: torch.from_numpy(array) for name, array in windows.batch(np.array([0, 1]), vocabulary.pad_id).items()}
    with torch.no_grad():
        logits = model(batch)
    assert logits.shape[:2] == (2, 2) and logits[:, :, 1].eq(-torch.inf).all()
    assert not torch.allclose(logits[0, :, 0], logits[1, :, 0])


@pytest.mark.parametrize("max_length", [32, 12])
def test_what_the_question_asks_for_is_learnt(encoder, tokenizer, vocabulary, max_length):
    """The name in the text is the answer; where there is none, nothing is. In short rows the text comes in several windows."""
    generator = np.random.default_rng(0)

    def part(number: int) -> list[AnsweredExample]:
        examples = []
        for i in range(number):
            words = [*map(str, generator.choice(["the", "film", "is"], size=8))]
            name = str(generator.choice(["anna", "berlin"])) if i % 2 else None
            if name:
                words[generator.integers(8)] = name
            examples.append(example(" ".join(words), name, number=i))
        return examples

    data, short = TaskData("answers", (), part(240), part(60)), task("squad2", stride=4, epochs=6, learning_rate=3e-3)
    measure = QuestionAnswering(short, data, evaluation(), tokenizer, max_length)
    module = torch.nn.Module()
    module.encoder = encoder
    outcome = measure(Subject("pretrained", module, tokenizer, Fabric(accelerator="cpu", devices=1), "test"), 0)
    assert outcome.metrics["exact"] > 0.9 and outcome.metrics["best_exact"] >= outcome.metrics["exact"] and not outcome.collapsed
    assert len(outcome.predictions) == 60 and outcome.facts["windows"]["dev"] >= 60 * (2 if max_length == 12 else 1)
    assert {line["prediction"] for line in outcome.predictions} <= {"", "anna", "berlin"}


def write(folder: Path, text: str) -> Path:
    (folder / "squad2").mkdir(exist_ok=True)
    file = folder / "squad2/train-v2.0.json"
    file.write_text(text)
    return file


def test_files_that_are_none(tmp_path):
    paragraph = {"context": "the film", "qas": [{"question": "q", "id": "7", "answers": [{"text": "film", "answer_start": 3}]}]}
    with pytest.raises(UserError, match="not where the file says"):
        list(read_questions(write(tmp_path, json.dumps({"data": [{"paragraphs": [paragraph]}]}))))
    for text in ("{", "[]", '{"data": [{}]}'):
        with pytest.raises(UserError, match="not in SQuAD's form"):
            list(read_questions(write(tmp_path, text)))
    with pytest.raises(UserError, match="no questions"):
        list(read_questions(write(tmp_path, '{"data": []}')))
    with pytest.raises(UserError, match="the dev file is missing"):
        task("squad2").check(evaluation(data_dir=str(tmp_path)))
    damaged = tmp_path / "train.json.gz"
    damaged.write_bytes(gzip.compress(b"{" * 100)[:20])
    with pytest.raises(UserError, match="damaged"):
        list(read_questions(damaged))


def test_real_questions(shared_data, tokenizer):
    data = task("squad2").load(evaluation(data_dir=str(shared_data)), Path())
    assert (len(data.train), len(data.dev)) == (4295, 1783)
    assert sum(not question.answers for question in data.dev) == 898
    baseline = task("squad2").baselines(data)["no_answer"]
    assert list(baseline.values()) == pytest.approx([898 / 1783] * 4)
    windows = encode_questions(data.dev[:60], tokenizer, 384, 64, 128)  # letters for tokens: texts of many windows
    answered = {windows.question[i] for i in np.flatnonzero(windows.labels[:, 0])}
    assert answered == {i for i, question in enumerate(data.dev[:60]) if question.answers}
