"""Modules of the objectives on sentence pairs: a label for the pair from [CLS], beside masked tokens or alone.

encoder -> (B, L, D) -> [CLS] -> dense, tanh -> (B, 2) -> summed cross-entropy in float32
                     -> masked-token head (mlm_module.py)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.heads import SequenceHead
from mlm_lab.objectives.mlm_module import MaskedLM
from mlm_lab.types import IGNORE_INDEX, Flops, Output, Sentences, Sums, Vocabulary


class PairLoss(nn.Module):
    """BERT's pooler and a projection to two logits, without dropout between; and the loss of a pair's label under its name."""

    def __init__(self, model: Encoder, name: str, label_name: str):
        super().__init__()
        self.name, self.label_name = name, label_name
        self.head = SequenceHead(model, num_outputs=2, dropout=0.0)

    def count(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Pairs with a label; 0 for batches without pairs, such as those of the masked-token probe."""
        if self.label_name not in batch:
            return torch.zeros((), dtype=torch.long, device=batch["input_ids"].device)
        return (batch[self.label_name] != IGNORE_INDEX).sum()

    def forward(self, hidden: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> Output:
        """(B, L, D) -> the loss, and the accuracy."""
        if self.label_name not in batch:
            return Output({self.name: hidden.new_zeros((), dtype=torch.float32)}, {})
        labels = batch[self.label_name]
        logits = self.head(hidden).float()  # (B, 2)
        loss = F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="sum")
        correct = (logits.detach().argmax(dim=-1) == labels).sum()  # IGNORE_INDEX is no class
        return Output({self.name: loss}, {f"{self.name}_accuracy": Sums(correct, self.count(batch))})

    def flops(self, rows: int) -> float:
        return 2.0 * rows * (self.head.dense.weight.numel() + self.head.out.weight.numel())


class MaskedPairs(MaskedLM):
    """Encoder, masked-token head and pair head; satisfies `types.ObjectiveModule`. Each loss has its own count."""

    def __init__(
        self,
        model: Encoder,
        vocabulary: Vocabulary,
        name: str,
        label_name: str,
        mlm_weight: float,
        pair_weight: float,
        sees_masks: bool = True,
    ):
        super().__init__(model, vocabulary, sees_masks)
        self.loss_weights = {"mlm": mlm_weight, name: pair_weight}
        self.pair = PairLoss(model, name, label_name)

    def target_counts(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {**super().target_counts(batch), self.pair.name: self.pair.count(batch)}

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Output:
        hidden = self.encoder(batch["input_ids"], batch["attention_mask"], batch.get("position_ids"), batch.get("token_type_ids"))
        tokens, pairs = self.masked_tokens(hidden, batch), self.pair(hidden, batch)
        return Output({**tokens.losses, **pairs.losses}, {**tokens.metrics, **pairs.metrics})

    def flops(self, batch: Mapping[str, torch.Tensor]) -> Flops:
        tokens = super().flops(batch)
        return Flops(tokens.total + self.pair.flops(len(batch["input_ids"])), tokens.head)


class Pairs(nn.Module):
    """Encoder and pair head; satisfies `types.ObjectiveModule`. It predicts no tokens."""

    token_loss = None

    def __init__(self, model: Encoder, vocabulary: Vocabulary, name: str, label_name: str, pair_weight: float):
        super().__init__()
        self.static_shapes = False
        self.loss_weights: Mapping[str, float] = {name: pair_weight}
        self.encoder = model.build(vocabulary)
        self.pair = PairLoss(model, name, label_name)

    def target_counts(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {self.pair.name: self.pair.count(batch)}

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Output:
        hidden = self.encoder(batch["input_ids"], batch["attention_mask"], batch.get("position_ids"), batch.get("token_type_ids"))
        return self.pair(hidden, batch)

    def flops(self, batch: Mapping[str, torch.Tensor]) -> Flops:
        batch_size, length = batch["input_ids"].shape
        return Flops(self.encoder.flops(batch_size, length) + self.pair.flops(batch_size), 0.0)

    def sentence_scores(self, sentences: Sentences) -> dict[str, torch.Tensor]:
        return {}
