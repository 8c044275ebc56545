"""Fine-tuning: an encoder and a fresh head, trained on one task with one seed, then its predictions on every evaluated part.

ids -> encoder -> mean, first or last token -> head -> class or value         AdamW, linear schedule with warm-up, gradient clipping
               -> head on first sub-tokens -> tag of each word          the same
               -> head on every token -> where the answer begins, ends  the same
ids -> frozen encoder -> last four layers -> BiLSTM -> tag of each word the feature-based mode
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mlm_lab import console
from mlm_lab.evaluation.encode import NO_TOKEN, EncodedPart, sorted_batches, training_batches
from mlm_lab.evaluation.measures.measure import Failed
from mlm_lab.evaluation.task import Kind, TaskData
from mlm_lab.models.heads import SequenceHead, TokenHead
from mlm_lab.optim.adamw import AdamW
from mlm_lab.optim.schedules import Linear
from mlm_lab.types import IGNORE_INDEX

if TYPE_CHECKING:
    from lightning.fabric import Fabric

FEATURE_LAYERS = 4
HEAD_DROPOUT = 0.1


class Diverged(Failed):
    """The training loss is no longer a finite number."""


@dataclass(frozen=True)
class Recipe:
    """One cell's fine-tuning, every choice resolved."""

    learning_rate: float
    steps: int
    batch_size: int
    warmup_share: float
    weight_decay: float
    pooling: str
    feature_based: bool


class FineTuned(nn.Module):
    """An encoder with the head that the task needs."""

    def __init__(self, encoder: nn.Module, kind: Kind, num_labels: int, recipe: Recipe):
        super().__init__()
        self.encoder, self.kind, self.recipe = encoder, kind, recipe
        self.features = BiLSTM(encoder) if recipe.feature_based else None
        if self.features is not None:
            encoder.requires_grad_(False)
        if kind == "tagging":
            self.head = TokenHead(encoder.config, num_labels, HEAD_DROPOUT) if self.features is None else self.features.head(num_labels)
        elif kind == "answers":
            self.head = TokenHead(encoder.config, 2, HEAD_DROPOUT)
        else:
            self.head = SequenceHead(encoder.config, num_labels if kind == "classification" else 1, HEAD_DROPOUT)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Logits (B, C), values (B,), or logits of each token (B, L, C); of answers (B, 2, L), where they begin and where they end."""
        mask = batch["attention_mask"]
        inputs = (batch["input_ids"], mask, batch["position_ids"], batch["token_type_ids"])
        if self.features is not None:
            with torch.no_grad():
                layers = self.encoder(*inputs, output_hidden_states=True)
            return self.head(self.features(layers, mask))
        hidden = self.encoder(*inputs)  # (B, L, D)
        if self.kind == "tagging":
            return self.head(hidden)
        if self.kind == "answers":
            logits = self.head(hidden)
            if self.encoder.causal:  # place 0, "no answer", has seen nothing: the last token says it
                logits = torch.cat([pool(logits, mask, "last"), logits[:, 1:]], dim=1)
            return logits.transpose(1, 2).masked_fill(~batch["answerable"][:, None], float("-inf"))
        logits = self.head(pool(hidden, mask, self.recipe.pooling))
        return logits[:, 0] if self.kind == "regression" else logits


def pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """(B, L, D), (B, L) 1 where there is a token, padding behind -> (B, 1, D): what stands for the whole sequence."""
    if pooling == "mean":
        weights = mask[:, :, None].to(hidden.dtype)
        return (hidden * weights).sum(dim=1, keepdim=True) / weights.sum(dim=1, keepdim=True)
    place = mask.sum(dim=1) - 1 if pooling == "last" else torch.zeros_like(mask[:, 0])
    return hidden.gather(1, place[:, None, None].expand(-1, -1, hidden.shape[-1]))


class BiLSTM(nn.Module):
    """Devlin et al. 2019, section 5.3: the last layers concatenated, two bidirectional LSTM layers of the encoder's width each way."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.layers = min(FEATURE_LAYERS, encoder.num_layers)
        self.width = encoder.hidden_size
        self.lstm = nn.LSTM(self.layers * self.width, self.width, num_layers=2, bidirectional=True, batch_first=True)

    def head(self, num_labels: int) -> nn.Module:
        return nn.Sequential(nn.Dropout(HEAD_DROPOUT), nn.Linear(2 * self.width, num_labels))

    def forward(self, hidden_states: Sequence[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
        """(B, L, D) each layer -> (B, L, 2 D). Padding is left out, so that the backward direction starts at the last word."""
        features = torch.cat(list(hidden_states[-self.layers :]), dim=-1).float()
        with torch.autocast(features.device.type, enabled=False):
            packed = nn.utils.rnn.pack_padded_sequence(features, mask.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False)
            output, _ = self.lstm(packed)
            return nn.utils.rnn.pad_packed_sequence(output, batch_first=True, total_length=mask.shape[1])[0]


def finetune(
    encoder: nn.Module, data: TaskData, train: EncodedPart, recipe: Recipe, seed: int, fabric: Fabric, pad_id: int, description: str
) -> nn.Module:
    """Train the encoder (in place) and a fresh head. The same arguments give the same bits on the same machine and threads.

    Values to predict are standardised by the training part's mean and deviation; `predict` undoes it.

    Raises:
        Diverged: the loss is not finite.
    """
    with torch.random.fork_rng(devices=[fabric.device] if fabric.device.type == "cuda" else []):
        torch.manual_seed(seed)  # the head's weights and dropout; the order of examples has its own generator
        model = FineTuned(encoder, data.kind, len(data.label_names), recipe)
        centre, scale = _standard(data.kind, train)
        model.register_buffer("centre", torch.tensor(centre))
        model.register_buffer("scale", torch.tensor(scale))
        optimiser = AdamW(peak_lr=recipe.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=recipe.weight_decay, gradient_clip=1.0)
        factor = Linear(warmup_steps=recipe.warmup_share, final_factor=0.0).build(recipe.steps)
        wrapped, optimizer = fabric.setup(model, optimiser.build(model))
        model.train()
        if recipe.feature_based:
            encoder.eval()
        batches = training_batches(train.lengths, recipe.batch_size, seed)
        with console.progress(description, recipe.steps, "steps") as progress:
            for step in range(recipe.steps):
                for group in optimizer.param_groups:
                    group["lr"] = recipe.learning_rate * factor(step)
                batch = _to_device(train.batch(next(batches), pad_id), fabric)
                loss = _loss(wrapped(batch), batch["labels"], model)
                fabric.backward(loss)
                fabric.clip_gradients(wrapped, optimizer, max_norm=optimiser.gradient_clip, error_if_nonfinite=False)
                optimizer.step()
                optimizer.zero_grad()
                if step % 20 == 0 or step == recipe.steps - 1:
                    value = loss.item()
                    if not math.isfinite(value):
                        raise Diverged(f"the training loss was {value} at step {step} of {recipe.steps}")
                    progress.update(step + 1, loss=value)
    return wrapped


def _standard(kind: Kind, train: EncodedPart) -> tuple[float, float]:
    """Mean and deviation of the values to predict."""
    if kind != "regression":
        return 0.0, 1.0
    return float(train.labels.mean()), float(train.labels.std()) or 1.0


def _loss(output: torch.Tensor, labels: torch.Tensor, model: FineTuned) -> torch.Tensor:
    if model.kind == "regression":
        return F.mse_loss(output.float(), (labels.float() - model.centre) / model.scale)
    # A batch without one labelled token (every word cut off) has loss 0, not 0 / 0.
    total = F.cross_entropy(output.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")
    return total / (labels != IGNORE_INDEX).sum().clamp(min=1)


@torch.no_grad()
def predict(wrapped: nn.Module, part: EncodedPart, label_names: Sequence[str], fabric: Fabric, pad_id: int) -> list:
    """Predictions in the order of the examples: class indices, values, or the tags of each word ("" for a word that was cut off)."""
    model = wrapped.module
    model.eval()
    predictions: list = [None] * len(part)
    for indices in sorted_batches(part.lengths):
        output = wrapped(_to_device(part.batch(indices, pad_id), fabric)).float()
        answers = (output * model.scale + model.centre if model.kind == "regression" else output.argmax(dim=-1)).cpu().numpy()
        for row, i in enumerate(indices):
            predictions[i] = answers[row].item() if part.word_tokens is None else _tags(answers[row], part.word_tokens[i], label_names)
    return predictions


def _tags(answers: np.ndarray, word_tokens: np.ndarray, label_names: Sequence[str]) -> list[str]:
    return ["" if place == NO_TOKEN else label_names[answers[place]] for place in word_tokens]


def _to_device(batch: dict[str, np.ndarray], fabric: Fabric) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array).to(fabric.device) for name, array in batch.items()}
