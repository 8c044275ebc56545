"""What stands on an encoder: the masked-language-model head, and the heads that fine-tuning uses."""

from __future__ import annotations

import torch
from torch import nn

from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.transformer import gelu, initialise, layer_norm
from mlm_lab.models.vocabulary_loss import VocabularyHead
from mlm_lab.types import Flops


class MaskedLMHead(VocabularyHead):
    """BERT's: dense, GELU, norm, projection to the vocabulary with its own bias; tied to the token embeddings unless the config says
    otherwise. It works at the embeddings' width E (ALBERT: Lan et al. 2020; ELECTRA's generator).

    The tied matrix is an argument of forward and no parameter here: so it stays tied through copies, moves and reloads.
    """

    def __init__(self, config: Encoder, vocabulary_rows: int, vocabulary_size: int):
        super().__init__()
        width = config.embedding_width
        self.dense = nn.Linear(config.hidden_size, width, bias=config.bias)
        self.activation = gelu(config)
        self.norm = layer_norm(config, width)
        self.weight = None if config.tie_output else nn.Parameter(torch.empty(vocabulary_rows, width))
        self.bias = nn.Parameter(torch.zeros(vocabulary_rows))
        self.register_buffer("is_padding_row", torch.arange(vocabulary_rows) >= vocabulary_size, persistent=False)
        initialise(self.dense, config.initializer_range)
        if self.weight is not None:
            nn.init.normal_(self.weight, std=config.initializer_range)

    def projected(self, hidden: torch.Tensor, embedding_weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As `VocabularyHead.projected`. A head with a matrix of its own makes no use of the embeddings."""
        # The bias masks padding rows at no cost, and the product keeps its aligned width.
        bias = self.bias.masked_fill(self.is_padding_row, float("-inf"))
        weight = embedding_weight if self.weight is None else self.weight
        return self.norm(self.activation(self.dense(hidden))), weight, bias

    def flops(self, rows: int) -> Flops:
        """Forward FLOPs of (rows, D) hidden states; `head` is the projection's part."""
        projection = 2.0 * rows * self.dense.out_features * self.bias.numel()
        return Flops(2.0 * rows * self.dense.in_features * self.dense.out_features + projection, projection)


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
