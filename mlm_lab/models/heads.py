"""What stands on an encoder: the masked-language-model head, and the heads that fine-tuning uses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.transformer import initialise, layer_norm


class MaskedLMHead(nn.Module):
    """BERT's: dense, GELU, norm, projection to the vocabulary tied to the token embeddings, with its own bias.

    The tied matrix is an argument of forward and no parameter here: so it stays tied through copies, moves and reloads.
    """

    def __init__(self, config: Encoder, vocabulary_rows: int, vocabulary_size: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)
        self.norm = layer_norm(config)
        self.bias = nn.Parameter(torch.zeros(vocabulary_rows))
        self.register_buffer("is_padding_row", torch.arange(vocabulary_rows) >= vocabulary_size, persistent=False)
        initialise(self.dense, config.initializer_range)

    def forward(self, hidden: torch.Tensor, embedding_weight: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (N, V) logits; -inf in the padding rows of the vocabulary, which are never predicted."""
        # The bias masks them at no cost, and the product keeps its aligned width.
        bias = self.bias.masked_fill(self.is_padding_row, float("-inf"))
        return F.linear(self.norm(F.gelu(self.dense(hidden))), embedding_weight, bias)


class SequenceHead(nn.Module):
    """Classification (num_outputs classes) or regression (1) from the first token: BERT's pooler (dense, tanh), dropout, projection."""

    def __init__(self, config: Encoder, num_outputs: int, dropout: float):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(config.hidden_size, num_outputs)
        self.apply(lambda module: initialise(module, config.initializer_range))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, L, D) -> (B, num_outputs)"""
        return self.out(self.dropout(torch.tanh(self.dense(hidden[:, 0]))))


class TokenHead(nn.Module):
    """A label for each token: dropout, projection."""

    def __init__(self, config: Encoder, num_outputs: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(config.hidden_size, num_outputs)
        initialise(self.out, config.initializer_range)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, L, D) -> (B, L, num_outputs)"""
        return self.out(self.dropout(hidden))
