"""The description of an encoder: independent choices, from which both BERT and the modern recipe are put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlm_lab.errors import UserError, require

if TYPE_CHECKING:
    from mlm_lab.models.transformer import TransformerEncoder
    from mlm_lab.types import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A bidirectional Transformer encoder.

    BERT (Devlin et al. 2019) is post-norm, learned positions, GELU, biases, a norm on the embeddings. ModernBERT (Warner et al. 2024) is
    pre-norm, rotary positions, GeGLU, no biases, a norm on the embeddings and at the end. MPNet is BERT with a relative-position bias.
    """

    hidden_size: int
    """Width of the residual stream, D."""
    num_layers: int
    """Number of Transformer layers."""
    num_heads: int
    """Attention heads of a layer; divides hidden_size."""
    intermediate_size: int
    """Width inside the feed-forward block (of each of its two halves with geglu)."""
    activation: str
    """gelu: one up-projection (BERT); geglu: GELU of one half times the other (Shazeer 2020)."""
    norm_position: str
    """post: after each residual sum (BERT); pre: before each block."""
    embedding_norm: bool
    """Whether the embeddings are normalised. With pre-norm the first layer then has no attention norm of its own (ModernBERT)."""
    final_norm: bool
    """Whether the last layer's output is normalised (pre-norm models)."""
    norm_eps: float
    """Added to the variance in each LayerNorm."""
    bias: bool
    """Whether linear layers and norms have biases (the bias of the vocabulary projection is always there)."""
    positions: str
    """Absolute positions: learned (a table, added to the embeddings), rotary (Su et al. 2021, on queries and keys), none."""
    max_positions: int
    """Rows of the table of learned positions: the longest sequence that it can take. Unused with other positions."""
    rotary_base: float
    """Base of the rotary wavelengths. Unused with other positions."""
    relative_bias: str
    """Learned bias on the attention scores by relative position, in T5's buckets, shared by all layers (as in MPNet): none; zero: starts
    at 0; neighbours: two heads start on the words before and after, two on a slope with the distance, which lets small models leave the
    unigram plateau early."""
    relative_buckets: int
    """Number of buckets of the relative bias, half of them for each direction (T5: 32)."""
    relative_max_distance: int
    """Distance from which on all share the last bucket (T5: 128)."""
    type_vocab_size: int
    """Rows of the segment embeddings; 0: none."""
    initializer_range: float
    """Standard deviation of the initial weights."""
    hidden_dropout: float
    """Dropout on the embeddings and on each block's output."""
    attention_dropout: float
    """Dropout on the attention weights; above 0 the fused attention kernels of the CPU cannot be used."""

    def __post_init__(self) -> None:
        require(
            ("hidden_size", self.hidden_size, self.hidden_size >= 1, "at least 1"),
            ("num_layers", self.num_layers, self.num_layers >= 1, "at least 1"),
            ("num_heads", self.num_heads, self.num_heads >= 1 and self.hidden_size % self.num_heads == 0, "a divisor of hidden_size"),
            ("intermediate_size", self.intermediate_size, self.intermediate_size >= 1, "at least 1"),
            ("activation", self.activation, self.activation in ("gelu", "geglu"), "gelu or geglu"),
            ("norm_position", self.norm_position, self.norm_position in ("pre", "post"), "pre or post"),
            ("norm_eps", self.norm_eps, self.norm_eps > 0, "above 0"),
            ("positions", self.positions, self.positions in ("learned", "rotary", "none"), "learned, rotary or none"),
            ("max_positions", self.max_positions, self.max_positions >= 1, "at least 1"),
            ("rotary_base", self.rotary_base, self.rotary_base > 1, "above 1"),
            ("relative_bias", self.relative_bias, self.relative_bias in ("none", "zero", "neighbours"), "none, zero or neighbours"),
            (
                "relative_buckets",
                self.relative_buckets,
                self.relative_buckets >= 8 and self.relative_buckets % 4 == 0,
                "a multiple of 4, at least 8",
            ),
            (
                "relative_max_distance",
                self.relative_max_distance,
                self.relative_max_distance > self.relative_buckets // 4,
                "above relative_buckets / 4",
            ),
            ("type_vocab_size", self.type_vocab_size, self.type_vocab_size >= 0, "0 or more"),
            ("initializer_range", self.initializer_range, self.initializer_range > 0, "above 0"),
            ("hidden_dropout", self.hidden_dropout, 0 <= self.hidden_dropout < 1, "in [0, 1)"),
            ("attention_dropout", self.attention_dropout, 0 <= self.attention_dropout < 1, "in [0, 1)"),
        )
        if self.positions == "rotary":
            head_size = self.hidden_size // self.num_heads
            require(("num_heads", self.num_heads, head_size % 2 == 0, "such that hidden_size / num_heads is even (rotary positions)"))

    def check_length(self, length: int, where: str = "max_length") -> None:
        """Raise UserError where the table of learned positions is too short for rows of so many tokens. where: what asks for them."""
        if self.positions == "learned" and length > self.max_positions:
            raise UserError(
                "the model has too few learned positions for such long rows",
                where=where,
                given=f"rows of {length} tokens, model.max_positions={self.max_positions}",
                fix=f"rows of {self.max_positions} tokens or less, or a model with model.max_positions={length}",
            )

    def build(self, vocabulary: Vocabulary) -> TransformerEncoder:
        """Make the module. Its initial weights are drawn from torch's global generator, which the caller has seeded (seeds.init)."""
        from mlm_lab.models.transformer import TransformerEncoder

        return TransformerEncoder(self, vocabulary.padded_size)
