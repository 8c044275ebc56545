"""Left-to-right language modelling on an encoder with a causal mask: all real positions reach the vocabulary projection.

encoder, causal -> (B, L, D) -> positions with a label -> (N, D) -> head -> (N, V) -> summed cross-entropy in float32
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.heads import MaskedLMHead
from mlm_lab.objectives.sentence_scores import framed, of_tokens
from mlm_lab.types import IGNORE_INDEX, Flops, Output, Sentences, Sums, Vocabulary


class CausalLM(nn.Module):
    """Encoder and head; satisfies `types.ObjectiveModule`. The head is the masked model's, so that the two differ in nothing but the mask
    and the targets.

    static_shapes keeps all B * L positions, for compilers that want constant shapes; otherwise those without a label are left out before
    the head, which gives the same sums.
    """

    loss_weights: Mapping[str, float] = {"clm": 1.0}
    token_loss = "clm"

    def __init__(self, model: Encoder, vocabulary: Vocabulary):
        super().__init__()
        self.static_shapes = False
        self.vocabulary = vocabulary
        self.encoder = model.build(vocabulary, causal=True)
        self.head = MaskedLMHead(model, vocabulary.padded_size, vocabulary.size)

    def target_counts(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"clm": (batch["labels"] != IGNORE_INDEX).sum()}

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Output:
        hidden = self.encoder(batch["input_ids"], batch["attention_mask"], batch.get("position_ids")).flatten(0, 1)  # (B * L, D)
        labels = batch["labels"].flatten()
        if not self.static_shapes:
            labelled = (labels != IGNORE_INDEX).nonzero().squeeze(1)
            hidden, labels = hidden.index_select(0, labelled), labels[labelled]
        found, count = self.head.loss(hidden, self.encoder.embedding_weight, labels), (labels != IGNORE_INDEX).sum()
        metrics = {"clm_loss": Sums(found.total.detach(), count), "clm_accuracy": Sums(found.correct.sum(), count)}
        return Output({"clm": found.total}, metrics)

    @torch.no_grad()
    def sentence_scores(self, sentences: Sentences) -> dict[str, torch.Tensor]:
        ids, mask = framed(sentences, self.vocabulary)
        before = self.encoder(ids, mask)[:, : sentences.ids.shape[1]][sentences.real]  # (N, D): at the place before each token
        found = torch.zeros(sentences.ids.shape, dtype=torch.float64, device=ids.device)
        found[sentences.real] = of_tokens(self.head(before, self.encoder.embedding_weight), sentences.ids[sentences.real])
        return {"likelihood": found.sum(dim=1)}

    def flops(self, batch: Mapping[str, torch.Tensor]) -> Flops:
        """Of all positions, labelled or not: a function of the shapes alone."""
        batch_size, length = batch["input_ids"].shape
        head = self.head.flops(batch_size * length)
        return Flops(self.encoder.flops(batch_size, length) + head.total, head.head)
