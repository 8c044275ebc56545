"""Span corruption: an encoder reads a text with spans cut out, a decoder writes the spans (T5: Raffel et al. 2020, section 3.1.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mlm_lab.corruption.schedules import MASK_SCHEDULES, scheduled_ratios
from mlm_lab.corruption.t5_spans import count_spans, draw_noise, longest_text, split_texts
from mlm_lab.data.raw_windows import RawWindows, cut_windows, gather_windows
from mlm_lab.errors import UserError, require
from mlm_lab.types import IGNORE_INDEX, Batch, ExampleKeys, ObjectiveModule, Vocabulary

if TYPE_CHECKING:
    from mlm_lab.corruption.draws import Draws
    from mlm_lab.data.token_store import TokenStore
    from mlm_lab.models.encoder_config import Encoder

SHORTEST_INPUT = 3
"""Encoder positions of the shortest text: a kept token, a sentinel, the end."""


@dataclass(frozen=True, kw_only=True)
class SpanCorruption:
    """Cut spans out of a text, put a sentinel into each gap, and write each sentinel with what was cut out there.

    T5's objective (Raffel et al. 2020, sections 3.1.4 and 3.3), where the defaults are from: 15 % in spans of 3 tokens in the mean, lengths
    by the rounding of its code. mask_ratio and mean_span_length are the keys that matter. A step costs the encoder at max_length positions,
    the decoder with its cross-attention at a fifth as many, and the vocabulary projection at each of those.

    A row is a window of raw text, as long as the longest whose encoder input fits into max_length (128: 141 tokens at 15 % and a mean
    span of 3). The rows of a batch hold no [CLS]; [SEP] is the end of sequence, the padding id starts the decoder. All tokens of a window
    see each other. Batches hold input_ids, attention_mask and position_ids (B, E) as in `types.Batch`, and

    decoder_input_ids       (B, D) int64   the targets, one place later, behind the padding id
    decoder_attention_mask  (B, D) int64   1 where there is a target, 0 behind
    labels                  (B, D) int64   the targets: sentinels, cut-out tokens, [SEP]; IGNORE_INDEX behind
    corpus_tokens           (B,) int64     tokens of the window

    E is max_length and D what a full window needs at the schedule's largest ratio. Rows are shorter, and padded, where a window ends with
    its document or with the store, and where a schedule is above its smallest ratio.

    The decoder follows the model option, as the encoder does; its cross-attention starts with T5's weights and, where the option starts
    its attention on the neighbours (tiny, mini), on those of the gap (`models.decoder` says why).
    """

    mask_ratio: float
    """Share of the window's tokens that are cut out, in (0, 1): T5's noise density. With a schedule: at the run's start."""
    mask_schedule: str
    """The ratio over the run. constant: mask_ratio; linear, cosine: a straight line or half a cosine from mask_ratio to final_mask_ratio;
    step: mask_ratio for the first half of the run, final_mask_ratio for the second; uniform: for each example a ratio drawn between the
    two. On held-out text, where there is no run, linear, cosine and step are at their end. Windows are as long as the smallest ratio
    allows, so the shapes stay; what a larger ratio takes out of the encoder's row is padding there."""
    final_mask_ratio: float | None
    """Where the schedule ends, or the other bound of uniform, in (0, 1). Unused with constant, which may leave it null."""
    mean_span_length: float
    """Tokens of a span in the mean, at least 1 (T5: 3). A row has round(cut-out tokens / mean_span_length) spans, of random lengths."""
    roll: bool
    """Whether a row may begin with a span, and end with kept text; otherwise it begins with kept text and ends with a span, as in T5."""
    cross_documents: bool
    """Whether windows run on over the borders of documents, which then leave no mark (T5). Otherwise a window ends with its document, and
    padding fills the row."""

    code_version: ClassVar[int] = 2
    """Raised when the same fields come to mean other batches or another model: part of the run's hash."""

    def __post_init__(self) -> None:
        final = self.final_mask_ratio
        final_holds = self.mask_schedule == "constant" if final is None else 0 < final < 1
        require(
            ("mask_ratio", self.mask_ratio, 0 < self.mask_ratio < 1, "in (0, 1)"),
            ("mask_schedule", self.mask_schedule, self.mask_schedule in MASK_SCHEDULES, "one of " + ", ".join(MASK_SCHEDULES)),
            ("final_mask_ratio", final, final_holds, "in (0, 1), or null with mask_schedule=constant"),
            ("mean_span_length", self.mean_span_length, self.mean_span_length >= 1, "at least 1"),
        )

    @property
    def ratio_bounds(self) -> tuple[float, float]:
        """The smallest and the largest ratio of the schedule."""
        last = self.mask_ratio if self.mask_schedule == "constant" else self.final_mask_ratio
        return min(self.mask_ratio, last), max(self.mask_ratio, last)

    def window_length(self, max_length: int) -> int:
        """Tokens of a full window, L."""
        return longest_text(max_length, self.ratio_bounds[0], self.mean_span_length)

    def decoder_length(self, max_length: int) -> int:
        """Decoder positions, D: the same in every batch of a run."""
        return int(count_spans(self.window_length(max_length), self.ratio_bounds[1], self.mean_span_length).decoder)

    def plan(self, store: TokenStore, max_length: int, draws: Draws) -> RawWindows:
        """Lay out an epoch of windows (`data.raw_windows`).

        Raises:
            UserError: rows have no room for a text; the spans of a full window are more than the sentinels or than its kept tokens, or
                longer than what is cut out; the split has too few tokens for a window.
        """
        if max_length < SHORTEST_INPUT:
            raise UserError(
                "a row has no room for a token, a sentinel and [SEP]",
                where="max_length",
                given=max_length,
                allowed=f"{SHORTEST_INPUT} or more",
            )
        self._check_spans(max_length, store.vocabulary)
        plan = cut_windows(store, max_length, self.window_length(max_length), self.cross_documents, draws)
        if len(plan) == 0:
            raise UserError(
                f"the {store.split} split is too small: it has no text of two tokens or more",
                given=f"{store.num_documents} documents, {len(store.tokens)} tokens",
                fix="give more text in data.files",
            )
        return plan

    def _check_spans(self, max_length: int, vocabulary: Vocabulary) -> None:
        """Whether the spans of a full window are what the recipe asks for, from the smallest to the largest ratio."""
        length, sentinels = self.window_length(max_length), len(vocabulary.sentinel_ids)
        fewest, most = (int(count_spans(length, ratio, self.mean_span_length).noise) for ratio in self.ratio_bounds)
        spans, kept = round(most / self.mean_span_length), length - most
        smallest, largest = (
            f"a ratio of {ratio}, objective.mean_span_length={self.mean_span_length}, max_length={max_length}"
            for ratio in self.ratio_bounds
        )
        if round(fewest / self.mean_span_length) == 0:
            raise UserError(
                f"the spans are longer than what is cut out of a row: {fewest} of {length} tokens",
                given=smallest,
                fix="set a smaller objective.mean_span_length, or a larger max_length or objective.mask_ratio",
            )
        if spans > kept:
            raise UserError(
                f"the spans lie too close: {spans} of them in {length} tokens, of which {kept} are kept, one or more before each span",
                given=largest,
                allowed=f"{kept} spans or fewer",
                fix=f"set objective.mean_span_length={most // kept + 1}, or a smaller objective.mask_ratio",
            )
        if spans > sentinels:
            raise UserError(
                f"a row has more spans than the tokenizer has sentinels (<extra_id_0>, ...): {spans} spans, {sentinels} sentinels",
                given=largest,
                allowed=f"{sentinels} spans or fewer",
                fix=f"set tokenizer.num_sentinels={spans}, a larger objective.mean_span_length or a smaller max_length",
            )

    def make_batch(self, store: TokenStore, plan: RawWindows, keys: ExampleKeys) -> Batch:
        """Make the batch of these examples, a function of (plan, keys, the recipe) alone."""
        tokens, lengths = gather_windows(store, plan, keys.index)
        last = self.mask_ratio if self.final_mask_ratio is None else self.final_mask_ratio
        ratios = scheduled_ratios(self.mask_schedule, self.mask_ratio, last, plan.draws, keys.position, keys.epoch, keys.index)
        counts = count_spans(lengths, ratios, self.mean_span_length)
        noise = draw_noise(lengths, counts, plan.window_length, self.roll, plan.draws, keys.epoch, keys.index)
        shape = plan.max_length, self.decoder_length(plan.max_length)
        inputs, targets = split_texts(tokens, lengths, noise, shape, store.vocabulary)
        attention_mask, decoder_mask = (
            (np.arange(width) < used[:, None]).astype(np.int64) for width, used in zip(shape, (counts.encoder, counts.decoder), strict=True)
        )
        start = np.full((len(targets), 1), store.vocabulary.pad_id, dtype=np.int64)
        return {
            "input_ids": inputs,
            "attention_mask": attention_mask,
            "position_ids": attention_mask * np.arange(plan.max_length),
            "decoder_input_ids": np.where(decoder_mask, np.append(start, targets[:, :-1], axis=1), store.vocabulary.pad_id),
            "decoder_attention_mask": decoder_mask,
            "labels": np.where(decoder_mask, targets, IGNORE_INDEX),
            "corpus_tokens": lengths,
        }

    def build(self, model: Encoder, vocabulary: Vocabulary) -> ObjectiveModule:
        """Make encoder and decoder."""
        from mlm_lab.objectives.span_corruption_module import SpanCorruptionModel

        return SpanCorruptionModel(model, vocabulary)

    def probes(self) -> dict[str, SpanCorruption]:
        """None: the module writes spans and does not fill masks."""
        return {}
