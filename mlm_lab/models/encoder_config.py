"""The description of an encoder: independent choices, from which both BERT and the modern recipe are put together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mlm_lab.errors import UserError, require

if TYPE_CHECKING:
    from mlm_lab.models.transformer import Embeddings, TransformerEncoder
    from mlm_lab.types import Vocabulary


ACTIVATIONS = ("gelu", "gelu_tanh", "geglu", "relu")


RELATIVE_BIASES = ("none", "zero", "neighbours", "matches")


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A bidirectional Transformer encoder.

    BERT (Devlin et al. 2019) is post-norm, learned positions, GELU, biases, a norm on the embeddings. ModernBERT (Warner et al. 2024) is
    pre-norm, rotary positions, GeGLU, no biases, a norm on the embeddings and at the end, and most of its layers see a window only. MPNet
    is BERT with a relative-position bias. ALBERT (Lan et al. 2020) is BERT with shared layers and factorised embeddings.
    """

    hidden_size: int
    """Width of the residual stream, D."""
    num_layers: int
    """Number of Transformer layers."""
    share_layers: bool
    """Whether all layers are one layer's weights, applied num_layers times (ALBERT, section 3.1). It saves memory, not time."""
    num_heads: int
    """Attention heads of a layer; divides hidden_size."""
    intermediate_size: int
    """Width inside the feed-forward block (of each of its two halves with geglu)."""
    embedding_size: int | None
    """Width of the token, position and segment embeddings, E: a linear layer takes them to hidden_size where it differs, and the
    masked-token head works at this width (ALBERT, ELECTRA: 128). null: hidden_size."""
    tie_output: bool
    """Whether the projection to the vocabulary is the matrix of the token embeddings (BERT), or one of its own."""
    activation: str
    """gelu: one up-projection (BERT); gelu_tanh: by the tanh formula, as the published ALBERTs have it; geglu: GELU of one half times the
    other (Shazeer 2020); relu: as gelu (T5)."""
    norm: str
    """layer: LayerNorm (Ba et al. 2016); rms: divided by the root mean square, without a mean or a bias (Zhang and Sennrich 2019, T5)."""
    norm_position: str
    """post: after each residual sum (BERT); pre: before each block."""
    embedding_norm: bool
    """Whether the embeddings are normalised. With pre-norm the first layer then has no attention norm of its own (ModernBERT)."""
    final_norm: bool
    """Whether the last layer's output is normalised (pre-norm models)."""
    norm_eps: float
    """Added to the variance in each norm."""
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
    unigram plateau early; matches: two heads on the neighbours, the others on tokens like their own elsewhere in the row, which lets them
    compare two segments early (objective=mlm_nsp). With the last two a decoder's cross-attention has a bias too, by the distance from the
    gap that is filled."""
    relative_buckets: int
    """Number of buckets of the relative bias, half of them for each direction (T5: 32)."""
    relative_max_distance: int
    """Distance from which on all share the last bucket (T5: 128)."""
    local_window: int | None
    """Tokens that a local layer's query sees, half on each side and itself (ModernBERT: 128, which is 64 each way). null: all layers are
    global. Scores outside the window are masked, not saved."""
    global_every: int
    """With local_window, each global_every-th layer is global, the first among them (ModernBERT: 3; 1: all). Unused without."""
    local_rotary_base: float | None
    """Base of the rotary wavelengths in local layers (ModernBERT: 10,000 beside 160,000). null: rotary_base."""
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
            ("embedding_size", self.embedding_size, self.embedding_size is None or self.embedding_size >= 1, "at least 1, or null"),
            ("activation", self.activation, self.activation in ACTIVATIONS, ", ".join(ACTIVATIONS)),
            ("norm", self.norm, self.norm in ("layer", "rms"), "layer or rms"),
            ("norm_position", self.norm_position, self.norm_position in ("pre", "post"), "pre or post"),
            ("norm_eps", self.norm_eps, self.norm_eps > 0, "above 0"),
            ("positions", self.positions, self.positions in ("learned", "rotary", "none"), "learned, rotary or none"),
            ("max_positions", self.max_positions, self.max_positions >= 1, "at least 1"),
            ("rotary_base", self.rotary_base, self.rotary_base > 1, "above 1"),
            ("relative_bias", self.relative_bias, self.relative_bias in RELATIVE_BIASES, "none, zero, neighbours or matches"),
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
            (
                "local_window",
                self.local_window,
                self.local_window is None or (self.local_window >= 2 and self.local_window % 2 == 0),
                "an even number, at least 2, or null",
            ),
            ("global_every", self.global_every, self.global_every >= 1, "at least 1"),
            (
                "local_rotary_base",
                self.local_rotary_base,
                self.local_rotary_base is None or self.local_rotary_base > 1,
                "above 1, or null",
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

    @property
    def embedding_width(self) -> int:
        """E: embedding_size, or hidden_size where that is null."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def starts_on_neighbours(self) -> bool:
        """Whether the relative bias has heads that start on the words before and after."""
        return self.relative_bias in ("neighbours", "matches")

    def is_local(self, layer: int) -> bool:
        """Whether this layer (from 0) attends within local_window only."""
        return self.local_window is not None and layer % self.global_every != 0

    def scaled(self, ratio: float) -> Encoder:
        """The same model at ratio times the width, such as ELECTRA's generator (Clark et al. 2020, section 3.3): fewer heads of the same
        size, a narrower feed-forward block, as many layers. Its embeddings keep their width, so that the two can share them.

        A ratio counts as the fraction of the heads that it is within 1 % of, so that 0.333 is a third.

        Raises:
            UserError: ratio is not in (0, 1], or does not divide heads and feed-forward width.
        """
        heads = round(ratio * self.num_heads)
        parts = math.gcd(self.num_heads, self.intermediate_size)
        divides = abs(ratio * self.num_heads - heads) <= 0.01 * heads and heads * self.intermediate_size % self.num_heads == 0
        if not (0 < ratio <= 1 and heads >= 1 and divides):
            raise UserError(
                "the model cannot be made this much narrower",
                given=f"a ratio of {ratio} of model.num_heads={self.num_heads}, model.intermediate_size={self.intermediate_size}",
                allowed=", ".join(_fraction(number, parts) for number in range(1, parts + 1)),
            )
        return replace(
            self,
            hidden_size=self.hidden_size // self.num_heads * heads,
            num_heads=heads,
            intermediate_size=self.intermediate_size * heads // self.num_heads,
            embedding_size=self.embedding_width,
        )

    def build(self, vocabulary: Vocabulary, *, causal: bool = False, embeddings: Embeddings | None = None) -> TransformerEncoder:
        """Make the module.

        causal: tokens attend to themselves and those before them only. embeddings: those of another encoder, to be shared with it.

        Its initial weights are drawn from torch's global generator, which the caller has seeded (seeds.init).
        """
        from mlm_lab.models.transformer import TransformerEncoder

        return TransformerEncoder(self, vocabulary.padded_size, causal=causal, embeddings=embeddings)


def _fraction(number: int, parts: int) -> str:
    divisor = math.gcd(number, parts)
    return f"{number // divisor}/{parts // divisor}" if number < parts else "1"
