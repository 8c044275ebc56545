"""Question answering as a measure: a span of the text, or none, is learnt and predicted (Devlin et al. 2019, section 4.3).

    windows -> encoder -> logits of beginning and end at every place of the text and at place 0, which stands for "no answer"
    question -> the span of the highest sum of both, over all of its windows, against the lowest sum at place 0 of a window

The answer is "" where place 0 wins. How much it wins by is kept (odds), and the scores at the best threshold for it stand beside the plain
ones under names of their own: they are chosen on the questions they are reported on.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlm_lab.evaluation.encode import sorted_batches
from mlm_lab.evaluation.measures.fine_tuning import FineTuning
from mlm_lab.evaluation.measures.measure import Outcome, Subject
from mlm_lab.evaluation.squad_scores import best_threshold, score_answer
from mlm_lab.evaluation.task import AnsweredExample
from mlm_lab.evaluation.windows import Windows, encode_questions

if TYPE_CHECKING:
    from lightning.fabric import Fabric
    from torch import nn

    from mlm_lab.evaluation.settings import Evaluation
    from mlm_lab.evaluation.task import TaskData
    from mlm_lab.evaluation.tasks.squad2 import Squad2
    from mlm_lab.tokenizers.loading import LoadedTokenizer


class Answer(NamedTuple):
    """What a model says to a question."""

    text: str
    """The best span, also where no answer is likelier."""
    odds: float
    """By how much "no answer" scores above it."""

    @property
    def final(self) -> str:
        return "" if self.odds > 0 else self.text


class QuestionAnswering(FineTuning):
    """Satisfies `Measure`."""

    def __init__(self, task: Squad2, data: TaskData, evaluation: Evaluation, tokenizer: LoadedTokenizer, max_length: int):
        self.task, self.data, self.evaluation = task, data, evaluation
        self.train, self.dev = (
            encode_questions(part, tokenizer, max_length, task.max_question, task.stride) for part in (data.train, data.dev)
        )

    def __call__(self, subject: Subject, seed: int) -> Outcome:
        from mlm_lab.evaluation.finetune import finetune

        fabric, pad_id = subject.fabric, subject.tokenizer.vocabulary.pad_id
        encoder = copy.deepcopy(subject.module.encoder)
        model = finetune(encoder, self.data, self.train, self.recipe(subject), seed, fabric, pad_id, subject.title)
        answers = predict_answers(model, self.dev, self.data.dev, self.task.max_answer, fabric, pad_id)
        metrics, facts = score_answers(self.data.dev, answers)
        lines = [
            {
                "part": "dev",
                "index": index,
                "id": example.id,
                "gold": example.answers,
                "prediction": answer.final,
                "odds": round(answer.odds, 4),
            }
            for index, (example, answer) in enumerate(zip(self.data.dev, answers, strict=True))
        ]
        facts |= {"examples": {"dev": len(answers)}, "windows": {"dev": len(self.dev)}, "truncated": {"dev": self.dev.truncated}}
        collapsed = len({answer.final for answer in answers}) == 1
        return Outcome(metrics, lines, collapsed, facts, encoder=model.module.encoder)


def predict_answers(
    wrapped: nn.Module, windows: Windows, examples: Sequence[AnsweredExample], max_answer: int, fabric: Fabric, pad_id: int
) -> list[Answer]:
    """max_answer: tokens of an answer at most."""
    import torch

    wrapped.module.eval()
    none = np.full(len(examples), np.inf)
    best, texts = np.full(len(examples), -np.inf), [""] * len(examples)
    for indices in sorted_batches(windows.lengths):
        batch = {name: torch.from_numpy(array).to(fabric.device) for name, array in windows.batch(indices, pad_id).items()}
        with torch.no_grad():
            logits = wrapped(batch).float().cpu().numpy()  # (B, 2, L)
        for window, (begins, ends) in zip(indices, logits, strict=True):
            question, spans, first = windows.question[window], windows.spans[window], windows.first_segment[window]
            none[question] = min(none[question], begins[0] + ends[0])
            if not len(spans):
                continue
            inside = slice(first, first + len(spans))
            score, start, stop = best_span(begins[inside], ends[inside], max_answer)
            if score > best[question]:
                best[question], context = score, examples[question].context
                texts[question] = context[spans[start, 0] : spans[stop, 1]].strip()
    return [Answer(text, float(odds)) for text, odds in zip(texts, none - best, strict=True)]


def best_span(begins: np.ndarray, ends: np.ndarray, longest: int) -> tuple[float, int, int]:
    """(score, first, last) of the span of at most `longest` places with the highest begins[first] + ends[last]; the first of equal ones."""
    width = min(longest, len(begins))
    reach = np.lib.stride_tricks.sliding_window_view(np.append(ends, np.full(width - 1, -np.inf)), width)  # (places, width)
    sums = begins[:, None] + reach
    first, more = np.unravel_index(int(sums.argmax()), sums.shape)
    return float(sums[first, more]), int(first), int(first + more)


def score_answers(examples: Sequence[AnsweredExample], answers: Sequence[Answer]) -> tuple[dict[str, float | None], dict]:
    """The metrics, and for the cell's record their parts and thresholds."""
    plain, spans, silent = (
        np.array([score_answer(example.answers, text) for example, text in zip(examples, texts, strict=True)])
        for texts in ([answer.final for answer in answers], [answer.text for answer in answers], [""] * len(answers))
    )  # (questions, 2): exact, F1
    odds = np.array([answer.odds for answer in answers])
    (best_exact, exact_threshold), (best_f1, f1_threshold) = (best_threshold(spans[:, i], silent[:, i], odds) for i in (0, 1))
    exact, f1 = plain.mean(axis=0)
    answerable = np.array([bool(example.answers) for example in examples])
    facts = {
        name: {"questions": int(chosen.sum()), "exact": float(plain[chosen, 0].mean()), "f1": float(plain[chosen, 1].mean())}
        for name, chosen in (("answerable", answerable), ("unanswerable", ~answerable))
        if chosen.any()
    }
    facts["thresholds"] = {"best_exact": exact_threshold, "best_f1": f1_threshold}
    return {"f1": float(f1), "exact": float(exact), "best_f1": best_f1, "best_exact": best_exact}, facts
