"""Masked language modelling on an encoder: only labelled positions reach the vocabulary projection.

encoder -> (B, L, D) -> gather label_positions -> (N, D) -> head -> (N, V) -> summed cross-entropy in float32
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from mlm_lab.corruption.replacement import KIND_NAMES
from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.heads import MaskedLMHead
from mlm_lab.objectives.sentence_scores import pseudo_log_likelihoods
from mlm_lab.types import IGNORE_INDEX, Flops, Output, Sentences, Sums, Vocabulary


class MaskedLM(nn.Module):
    """Encoder and head; satisfies `types.ObjectiveModule`.

    static_shapes keeps all B * S slots, for compilers that want constant shapes; otherwise the unused slots are left out before the
    head, which gives the same sums.
    """

    loss_weights: Mapping[str, float] = {"mlm": 1.0}
    token_loss = "mlm"

    def __init__(self, model: Encoder, vocabulary: Vocabulary, sees_masks: bool = True):
        """sees_masks: whether the recipe ever puts the mask token into the text. Where it does not, the model cannot be asked with one."""
        super().__init__()
        self.static_shapes, self.sees_masks = False, sees_masks
        self.vocabulary, self.vocabulary_size = vocabulary, vocabulary.size
        self.encoder = model.build(vocabulary)
        self.head = MaskedLMHead(model, vocabulary.padded_size, vocabulary.size)

    def extra_repr(self) -> str:
        return "" if self.sees_masks else "never reads the mask token"

    def target_counts(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"mlm": (batch["labels"] != IGNORE_INDEX).sum()}

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Output:
        hidden = self.encoder(batch["input_ids"], batch["attention_mask"], batch.get("position_ids"), batch.get("token_type_ids"))
        return self.masked_tokens(hidden, batch)

    def masked_tokens(self, hidden: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> Output:
        """Loss and metrics from the encoder's output (B, L, D)."""
        positions, labels = self._slots(batch["label_positions"], batch["labels"], hidden.shape[1])
        found = self.head.loss(hidden.flatten(0, 1).index_select(0, positions), self.encoder.embedding_weight, labels)
        count = (labels != IGNORE_INDEX).sum()
        metrics = {"mlm_loss": Sums(found.total.detach(), count), "mlm_accuracy": Sums(found.correct.sum(), count)}
        return Output({"mlm": found.total}, metrics if self.training else metrics | by_kind("mlm", found.each, found.correct, batch))

    def _slots(self, label_positions: torch.Tensor, labels: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, S) each -> (N,) positions in the flattened (B * L) rows, (N,) labels."""
        rows = torch.arange(len(labels), device=labels.device)[:, None]
        positions, labels = (label_positions + rows * length).flatten(), labels.flatten()
        if self.static_shapes:
            return positions, labels
        used = (labels != IGNORE_INDEX).nonzero().squeeze(1)
        return positions[used], labels[used]

    @torch.no_grad()
    def predict(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor | None, positions: torch.Tensor
    ) -> torch.Tensor:
        """(B, L) inputs and (B, S) positions -> (B, S, vocabulary.size) float32 logits, in the mode (train, eval) that the module is in."""
        hidden = self.encoder(input_ids, attention_mask, position_ids)
        gathered = hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))
        return self.head(gathered, self.encoder.embedding_weight)[..., : self.vocabulary_size].float()

    def sentence_scores(self, sentences: Sentences) -> dict[str, torch.Tensor]:
        return pseudo_log_likelihoods(self.predict, sentences, self.vocabulary) if self.sees_masks else {}

    def flops(self, batch: Mapping[str, torch.Tensor]) -> Flops:
        """Of all slots, used or not: a function of the shapes alone."""
        batch_size, length = batch["input_ids"].shape
        head = self.head.flops(batch["labels"].numel())
        return Flops(self.encoder.flops(batch_size, length) + head.total, head.head)


def by_kind(name: str, losses: torch.Tensor, correct: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> dict[str, Sums]:
    """Loss and accuracy of the masked, of the random and of the kept targets: <name>_masked_loss, ...; they add up to those of all. None
    for batches that do not say what became of their targets.

    losses, correct: (N,) without gradient, of all B * S slots or of the used ones alone.
    """
    if "label_kinds" not in batch:
        return {}
    kinds = batch["label_kinds"].flatten()
    if len(kinds) != len(losses):
        kinds = kinds[(batch["labels"] != IGNORE_INDEX).flatten()]
    found = {}
    for kind, word in KIND_NAMES.items():
        chosen = kinds == kind
        for what, values in (("loss", losses), ("accuracy", correct)):
            found[f"{name}_{word}_{what}"] = Sums((values * chosen).sum(), chosen.sum())
    return found
