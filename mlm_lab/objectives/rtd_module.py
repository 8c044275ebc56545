"""Generator and discriminator of replaced token detection.

    masked input -> generator -> (N, V) at the selected places -> cross-entropy
                                  -> sampled tokens, no gradient -> corrupted input -> discriminator -> (B, L) -> replaced or original?

The embeddings are the discriminator's, and the generator's output is tied to them (Clark et al. 2020, section 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.heads import MaskedLMHead
from mlm_lab.models.transformer import initialise
from mlm_lab.objectives.mlm_module import by_kind
from mlm_lab.objectives.sentence_scores import framed, pseudo_log_likelihoods
from mlm_lab.types import IGNORE_INDEX, Flops, Output, Sentences, Sums, Vocabulary

TensorBatch = Mapping[str, torch.Tensor]


class ReplacedTokenHead(nn.Module):
    """Was this token replaced? Dense, GELU, projection to one logit."""

    def __init__(self, config: Encoder):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)
        self.out = nn.Linear(config.hidden_size, 1)
        self.apply(lambda module: initialise(module, config.initializer_range))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, L, D) -> (B, L)"""
        return self.out(F.gelu(self.dense(hidden))).squeeze(-1)

    def flops(self, rows: int) -> float:
        """Forward FLOPs of (rows, D) hidden states."""
        return 2.0 * rows * (self.dense.weight.numel() + self.out.weight.numel())


class ReplacedTokenDetection(nn.Module):
    """Both models and their heads; satisfies `types.ObjectiveModule`. `encoder` is the discriminator.

    A batch without sampling_uniforms is one of masked language modelling (the probe): the generator alone answers it, so its only loss is
    the generator's.

    static_shapes keeps all B * S slots, for compilers that want constant shapes; otherwise the unused slots are left out before the
    generator's head, which gives the same sums.
    """

    token_loss = "generator"

    def __init__(
        self, discriminator: Encoder, generator: Encoder, vocabulary: Vocabulary, discriminator_weight: float, sees_masks: bool = True
    ):
        """sees_masks: whether the generator ever reads the mask token."""
        super().__init__()
        self.static_shapes, self.sees_masks = False, sees_masks
        self.vocabulary, self.vocabulary_size = vocabulary, vocabulary.size
        self.loss_weights: Mapping[str, float] = {"generator": 1.0, "discriminator": discriminator_weight}
        self.encoder = discriminator.build(vocabulary)
        self.head = ReplacedTokenHead(discriminator)
        self.generator = generator.build(vocabulary, embeddings=self.encoder.embeddings)
        self.generator_head = MaskedLMHead(generator, vocabulary.padded_size, vocabulary.size)

    def extra_repr(self) -> str:
        return "" if self.sees_masks else "the generator never reads the mask token"

    def target_counts(self, batch: TensorBatch) -> dict[str, torch.Tensor]:
        counts = {"generator": (batch["labels"] != IGNORE_INDEX).sum()}
        if "sampling_uniforms" in batch:
            counts["discriminator"] = (batch["attention_mask"] != 0).sum()
        return counts

    def forward(self, batch: TensorBatch) -> Output:
        kept = slice(None) if self.static_shapes else (batch["labels"] != IGNORE_INDEX).flatten().nonzero().squeeze(1)
        batch_size, length = batch["input_ids"].shape
        row_starts = torch.arange(batch_size, device=batch["labels"].device)[:, None] * length
        places = (batch["label_positions"] + row_starts).flatten()[kept]  # (N,) in the flattened (B * L) rows
        labels = batch["labels"].flatten()[kept]
        hidden = _encode(self.generator, batch["input_ids"], batch)
        samples = "sampling_uniforms" in batch
        guess = self.generator_head.loss(
            hidden.flatten(0, 1).index_select(0, places),
            self.generator.embedding_weight,
            labels,
            batch["sampling_uniforms"].flatten()[kept] if samples else None,
        )
        name = "generator" if samples else "mlm"
        filled = {f"{name}_accuracy": Sums(guess.correct.sum(), (labels != IGNORE_INDEX).sum())}
        if not self.training:
            filled |= by_kind(name, guess.each, guess.correct, batch)
        if not samples:
            return Output({"generator": guess.total}, filled)
        # Padding rows have probability 0; a parallel sum that rounds could still end on one.
        sampled = guess.sampled.clamp(max=self.vocabulary_size - 1)  # from here on the generator learns nothing
        corrupted, replaced = put_samples(batch["input_ids"], places, labels, sampled)
        scores = self.head(_encode(self.encoder, corrupted, batch)).float()  # (B, L)
        real = batch["attention_mask"] != 0
        detection = F.binary_cross_entropy_with_logits(scores, replaced.float(), reduction="none")
        metrics = {**filled, **detection_metrics(scores.detach(), replaced, real, batch)}
        return Output({"generator": guess.total, "discriminator": detection.masked_fill(~real, 0.0).sum()}, metrics)

    @torch.no_grad()
    def predict(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor | None, positions: torch.Tensor
    ) -> torch.Tensor:
        """(B, L) inputs and (B, S) positions -> (B, S, vocabulary.size) float32 logits of the generator, in the mode it is in."""
        hidden = self.generator(input_ids, attention_mask, position_ids)
        gathered = hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))
        return self.generator_head(gathered, self.generator.embedding_weight)[..., : self.vocabulary_size].float()

    @torch.no_grad()
    def sentence_scores(self, sentences: Sentences) -> dict[str, torch.Tensor]:
        ids, mask = framed(sentences, self.vocabulary)
        scores = self.head(self.encoder(ids, mask))[:, 1 : 1 + sentences.ids.shape[1]]  # (B, T)
        original = F.logsigmoid(-scores.float()).double().masked_fill(~sentences.real, 0.0)
        found = {"replaced": original.sum(dim=1)}
        if self.sees_masks:
            by_generator = pseudo_log_likelihoods(self.predict, sentences, self.vocabulary)
            found |= {f"generator_{rule}": values for rule, values in by_generator.items()}
        return found

    def flops(self, batch: TensorBatch) -> Flops:
        """Of generator and discriminator, and of all slots, used or not: a function of the shapes alone. A batch that the generator alone
        answers costs its part."""
        batch_size, length = batch["input_ids"].shape
        vocabulary = self.generator_head.flops(batch["labels"].numel())
        total = self.generator.flops(batch_size, length) + vocabulary.total
        if "sampling_uniforms" in batch:
            total += self.encoder.flops(batch_size, length) + self.head.flops(batch_size * length)
        return Flops(total, vocabulary.head)


def _encode(encoder: nn.Module, input_ids: torch.Tensor, batch: TensorBatch) -> torch.Tensor:
    """(B, L) ids in the rows of the batch -> (B, L, D)"""
    return encoder(input_ids, batch["attention_mask"], batch.get("position_ids"), batch.get("token_type_ids"))


def put_samples(
    input_ids: torch.Tensor, places: torch.Tensor, labels: torch.Tensor, sampled: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Put the sampled tokens in the selected places.

    input_ids (B, L); places in the flattened rows, labels (the original ids, IGNORE_INDEX in unused slots) and sampled (N,).

    Returns: (B, L) ids, (B, L) bool: replaced. A sample that is the original token replaces nothing.
    """
    ids = input_ids.flatten()
    places = torch.where(labels != IGNORE_INDEX, places, ids.numel())  # unused slots go behind the last row
    corrupted = F.pad(ids, (0, 1)).scatter(0, places, sampled)
    replaced = torch.zeros_like(corrupted, dtype=torch.bool).scatter(0, places, sampled != labels)
    return corrupted[:-1].view_as(input_ids), replaced[:-1].view_as(input_ids)


def detection_metrics(scores: torch.Tensor, replaced: torch.Tensor, real: torch.Tensor, batch: TensorBatch) -> dict[str, Sums]:
    """How well replaced tokens are told from original ones. scores, replaced and real (not padding) are (B, L).

    replaced_share    of all tokens, [CLS] and [SEP] included
    sampled_accuracy  of the samples: those that are the original token, a in "a share p (1 - a) is replaced"
    rtd_precision     of the tokens with a score above 0 (a probability above 1/2), those that are replaced
    rtd_recall        of the replaced tokens, those with a score above 0
    rtd_auc           of the pairs of a replaced and an original token of one row, those in which the replaced one scores higher; ties count
                      half. Exact, and additive over rows: no bins, and the same whatever the batch. Rows are not compared with each other.
    """
    flagged, positions = (scores > 0) & real, batch["label_positions"]
    selected, number = (batch["labels"] != IGNORE_INDEX).sum(), replaced.sum()
    original = real & ~replaced
    # A replaced token is in a slot (unused slots look at [CLS], which nothing replaces), so (B, S, L) comparisons are enough. Counted
    # in halves, as integers.
    at_slots = scores.gather(1, positions)[:, :, None]
    pairs = replaced.gather(1, positions)[:, :, None] & original[:, None, :]
    halves = 2 * ((at_slots > scores[:, None, :]) & pairs).sum() + ((at_slots == scores[:, None, :]) & pairs).sum()
    return {
        "replaced_share": Sums(number, real.sum()),
        "sampled_accuracy": Sums(selected - number, selected),
        "rtd_precision": Sums((flagged & replaced).sum(), flagged.sum()),
        "rtd_recall": Sums((flagged & replaced).sum(), number),
        "rtd_auc": Sums(halves, 2 * pairs.sum()),
    }
