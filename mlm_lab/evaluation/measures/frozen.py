"""A frozen encoder's features, layer by layer, for the words of a tagging part or the texts of a classification part.

Shapes: B examples, L tokens, N words or texts, D width; layers: the embeddings, then each layer's output.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from mlm_lab.evaluation.encode import NO_TOKEN, EncodedPart, sorted_batches
from mlm_lab.evaluation.finetune import pool
from mlm_lab.evaluation.measures.logistic import Linear

if TYPE_CHECKING:
    from mlm_lab.evaluation.measures.measure import Subject


class Head(NamedTuple):
    """A regression on the features of one layer."""

    layer: int
    linear: Linear


class FrozenEncoder:
    """A copy of a subject's encoder on its device, in float32 whatever the precision of training, without gradients."""

    def __init__(self, subject: Subject, pooling: str):
        """pooling: what stands for a text (`Evaluation.pooling`)."""
        self.device, self.pooling, self.pad_id = subject.fabric.device, pooling, subject.tokenizer.vocabulary.pad_id
        self.encoder = copy.deepcopy(subject.module.encoder).to(self.device).eval()

    def features(self, part: EncodedPart) -> torch.Tensor:
        """(layers, N, D) float32 on the device: every word that has a token, or every text, in order."""
        counts = np.array([len(row) for row in kept_places(part)])
        ends = np.cumsum(counts)
        features = None
        for indices, of_batch in self._batches(part):
            if features is None:
                features = of_batch.new_empty(len(of_batch), int(ends[-1]), of_batch.shape[-1])
            rows = np.concatenate([np.arange(ends[i] - counts[i], ends[i]) for i in indices])
            features[:, torch.from_numpy(rows).to(self.device)] = of_batch
        return features

    def answers(self, part: EncodedPart, heads: Sequence[Head]) -> list[list[np.ndarray]]:
        """For each head and example the class of each word, NO_TOKEN where it was cut off, or (1,) that of the text."""
        answers = [[np.full(max(len(places), 1), NO_TOKEN) for places in all_places(part)] for _ in heads]
        kept = [places != NO_TOKEN for places in all_places(part)]
        for indices, features in self._batches(part):
            ends = np.cumsum([kept[i].sum() for i in indices])
            for head, of_head in zip(heads, answers, strict=True):
                classes = torch.addmm(head.linear.bias, features[head.layer], head.linear.weight).argmax(dim=-1).cpu().numpy()
                for i, of_example in zip(indices, np.split(classes, ends[:-1]), strict=True):
                    of_head[i][kept[i]] = of_example
        return answers

    @torch.no_grad()
    def _batches(self, part: EncodedPart) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Indices of a batch's examples, and (layers, n, D) of their words or texts, in their order."""
        places = kept_places(part)
        for indices in sorted_batches(part.lengths):
            batch = {name: torch.from_numpy(array).to(self.device) for name, array in part.batch(indices, self.pad_id).items()}
            mask = batch["attention_mask"]
            layers = self.encoder(batch["input_ids"], mask, batch["position_ids"], batch["token_type_ids"], output_hidden_states=True)
            if part.word_tokens is None:
                yield indices, torch.stack([pool(hidden, mask, self.pooling)[:, 0] for hidden in layers])
                continue
            rows = np.repeat(np.arange(len(indices)), [len(places[i]) for i in indices])
            columns = np.concatenate([places[i] for i in indices])
            yield indices, torch.stack([hidden[torch.from_numpy(rows), torch.from_numpy(columns)] for hidden in layers])


def all_places(part: EncodedPart) -> list[np.ndarray]:
    """Where each example's features are: the first sub-token of each word, NO_TOKEN where it was cut off; of a text, (1,) its start."""
    return [np.zeros(1, dtype=np.int64)] * len(part) if part.word_tokens is None else part.word_tokens


def kept_places(part: EncodedPart) -> list[np.ndarray]:
    """The same without the words that were cut off."""
    return [places[places != NO_TOKEN] for places in all_places(part)]
