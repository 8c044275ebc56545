"""Texts that a pretrained model scores as it is: batches of alike length, in float32, by each rule that the model can be judged by.

    tokens of each text -> sorted by length -> batches -> module.sentence_scores -> rule -> (texts,)

The rules are the model's own (objectives/sentence_scores.py). What the scores say is the measure's: minimal_pairs.py, bits.py.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab import console
from mlm_lab.evaluation.encode import sorted_batches
from mlm_lab.evaluation.measures.measure import Subject

if TYPE_CHECKING:
    import torch

    from mlm_lab.types import Sentences

UNDEFINED = "this model scores no sentences: it predicts no tokens, or has never read the mask token"
"""The note of a measure that came to no number for it."""
BATCH_TOKENS = 1024
"""Of a batch of texts, each of which a masked model reads as many times as it has tokens."""


def score_texts(subject: Subject, ids: Sequence[np.ndarray], starts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Score texts with a copy of the subject's module in evaluation mode.

    Args:
        ids: each text's tokens, without special ones; starts: where a token is the first one of a word.

    Returns:
        rule -> (texts,) float64. {}: the model scores no text.
    """
    device = subject.fabric.device
    module = copy.deepcopy(subject.module).to(device).eval()
    found: dict[str, np.ndarray] = {}
    done = 0
    with console.progress(subject.title, len(ids), "sentences") as progress:
        for indices in sorted_batches(np.array([max(len(tokens), 1) for tokens in ids]), BATCH_TOKENS):
            batch = _batch([ids[i] for i in indices], [starts[i] for i in indices], device)
            for rule, values in module.sentence_scores(batch).items():
                found.setdefault(rule, np.zeros(len(ids)))[indices] = values.cpu().numpy()
            done += len(indices)
            progress.update(done)
    return found


def _batch(ids: Sequence[np.ndarray], starts: Sequence[np.ndarray], device: torch.device) -> Sentences:
    import torch

    from mlm_lab.types import Sentences

    lengths = np.array([len(tokens) for tokens in ids])
    real = np.arange(max(lengths.max(), 1)) < lengths[:, None]
    padded, first = np.zeros(real.shape, dtype=np.int64), np.zeros(real.shape, dtype=bool)
    padded[real], first[real] = np.concatenate(ids), np.concatenate(starts)
    return Sentences(*(torch.from_numpy(array).to(device) for array in (padded, real, first)))
