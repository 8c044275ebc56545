"""Questions about a text as token ids: windows of the text that overlap where it is longer than a row.

    [CLS] question [SEP] a window of the text [SEP]      segments 0 and 1; each window is an example of its own in training
                                                         and one of those that a question's answer is taken from

Place 0 stands for "no answer" (Devlin et al. 2019, section 4.3): the label of a window without the answer, whole.

Shapes: N windows, B windows of a batch, L tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.evaluation.encode import EncodedPart
from mlm_lab.evaluation.task import AnsweredExample
from mlm_lab.types import Batch

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer


@dataclass(frozen=True)
class Windows(EncodedPart):
    """The windows of one part. labels: (N, 2) places of the answer's first and last token, (0, 0) where it is not in the window."""

    question: np.ndarray
    """(N,) which of the part's questions."""
    spans: list[np.ndarray]
    """For each window (tokens of the text in it, 2): where in the text each token begins and ends."""

    def batch(self, indices: np.ndarray, pad_id: int) -> Batch:
        """As `EncodedPart.batch`, and answerable (B, L) bool: places that an answer may begin or end at, and place 0."""
        batch = super().batch(indices, pad_id)
        first, tokens = self.first_segment[indices][:, None], np.array([len(self.spans[i]) for i in indices])[:, None]
        places = np.arange(batch["input_ids"].shape[1])
        return batch | {"answerable": (places == 0) | ((places >= first) & (places < first + tokens))}


def encode_questions(
    examples: Sequence[AnsweredExample], tokenizer: LoadedTokenizer, max_length: int, max_question: int, stride: int
) -> Windows:
    """max_length: tokens of a window, special tokens included; max_question: of a question; stride: between the starts of two windows."""
    vocabulary = tokenizer.vocabulary
    max_question = min(max_question, (max_length - 3) // 2)
    texts = {example.context: None for example in examples}
    encoded = dict(zip(texts, tokenizer.tokenizer.encode_batch(list(texts), add_special_tokens=False), strict=True))
    questions = tokenizer.tokenizer.encode_batch([example.question for example in examples], add_special_tokens=False)
    ids, heads, labels, owners, spans, cut = [], [], [], [], [], 0
    for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
        head = [vocabulary.cls_id, *question.ids[:max_question], vocabulary.sep_id]
        cut += len(question.ids) > max_question
        tokens, offsets = encoded[example.context].ids, np.array(encoded[example.context].offsets, dtype=np.int64).reshape(-1, 2)
        answer = answer_tokens(offsets, example)
        for start, stop in window_bounds(len(tokens), max_length - len(head) - 1, stride):
            inside = answer is not None and start <= answer[0] and answer[1] < stop
            ids.append(np.array([*head, *tokens[start:stop], vocabulary.sep_id], dtype=np.int64))
            heads.append(len(head))
            labels.append([place - start + len(head) for place in answer] if inside else [0, 0])
            owners.append(number)
            spans.append(offsets[start:stop])
    return Windows(ids, np.array(heads), np.array(labels), None, cut, np.array(owners), spans)


def window_bounds(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """[start, stop) of windows of at most `room` that cover a text; one, empty, where it has no token."""
    bounds, start, step = [(0, min(room, tokens))], 0, min(stride, room)
    while start + room < tokens:
        start += step
        bounds.append((start, min(start + room, tokens)))
    return bounds


def answer_tokens(offsets: np.ndarray, example: AnsweredExample) -> tuple[int, int] | None:
    """The first and the last token that the first gold answer touches; None where there is no answer."""
    if not example.answers:
        return None
    start, stop = example.start, example.start + len(example.answers[0])
    touched = np.flatnonzero((offsets[:, 0] < stop) & (offsets[:, 1] > start) & (offsets[:, 0] < offsets[:, 1]))
    return (int(touched[0]), int(touched[-1])) if len(touched) else None
