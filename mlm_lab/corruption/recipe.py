"""The masking recipe: what every objective that masks says about it, and the masking of rows by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.corruption.counts import MASK_COUNTS, slot_capacity
from mlm_lab.corruption.frequency import count_by_frequency, frequency_weights
from mlm_lab.corruption.masking import Masked, find_unit, mask_tokens, unit_names
from mlm_lab.corruption.replacement import REPLACE_UNITS
from mlm_lab.corruption.schedules import MASK_SCHEDULES, scheduled_ratios
from mlm_lab.corruption.units.span import SPAN_LAWS
from mlm_lab.errors import UserError, require

if TYPE_CHECKING:
    from mlm_lab.corruption.draws import Draws
    from mlm_lab.data.token_store import TokenStore
    from mlm_lab.types import ExampleKeys

OVERSHOOTS = ("skip", "stop", "cut")
FEWEST_SPECIALS = 2
"""A row has at least [CLS] and [SEP] that cannot be selected."""
PROBE_RATIOS = (0.15, 0.4)
"""Mask ratios of the probes mlm_15 and mlm_40: BERT's, and the one that Wettig et al. (2023) found better. Nested: the tokens that are
selected at the first are selected at the second too, and become the same."""
STANDARD_PROBE = {
    "mask_schedule": "constant",
    "final_mask_ratio": None,
    "replace_mix": (0.8, 0.1, 0.1),
    "replace_unit": "token",
    "mask_count": "exact",
    "max_predictions": None,
    "predict_share": 1.0,
    "unit": "token",
    "frequency_exponent": 0.0,
    "mask_unknown": True,
    "duplicates": None,
}
"""The fields by which every arm is probed beside the ratio, whatever it trains with: with the same rows, the same masks. Those that are
left out do not matter then."""

Check = tuple[str, object, bool, str]


@dataclass(frozen=True, kw_only=True)
class MaskingRecipe:
    """Which tokens are selected, how many, what they become, and which of them carry loss. Objectives that mask inherit these fields."""

    mask_ratio: float
    """Share of the candidates (all but special tokens and padding) that are selected, in (0, 1]. With a schedule: at the run's start."""
    mask_schedule: str
    """The ratio over the run. constant: mask_ratio; linear, cosine: a straight line or half a cosine from mask_ratio to final_mask_ratio;
    step: mask_ratio for the first half of the run, final_mask_ratio for the second; uniform: for each example a ratio drawn between the
    two, as in masked diffusion (without its weight of 1 / ratio on the loss). By the example's number in the run; on held-out text, where
    there is no run, linear, cosine and step are at their end."""
    final_mask_ratio: float | None
    """Where the schedule ends, or the other bound of uniform, in (0, 1]. Unused with constant, which may leave it null."""
    replace_mix: tuple[float, float, float]
    """Shares of the selected that become [mask token, random token, stay unchanged]; they sum to 1."""
    replace_unit: str | None
    """token: each token draws from the mix by itself; word: a word (with unit=collocation, a collocation) draws once for all its selected
    tokens; null: word where whole words are selected (every unit but token), token else."""
    mask_count: str
    """Tokens selected in a row of n candidates. exact: round(mask_ratio * n); bernoulli: as if each flipped a coin; stochastic:
    floor(mask_ratio * n + u)."""
    max_predictions: int | None
    """The rule of BERT's script for the count, mask_count=exact: min(max_predictions, max(1, round(mask_ratio * length))), where length
    counts [CLS] and [SEP] too (20 at length 128); a limit on what carries loss. null: the ratio is over candidates, without a limit."""
    predict_share: float
    """Share of the selected that carries loss, in (0, 1]; the rest is corrupted only (corruption rate mask_ratio against prediction rate
    mask_ratio * predict_share: Wettig et al. 2023, section 5, Table 3). What carries loss is what mask_ratio * predict_share would select:
    whole units in the order of their draws, the same targets as in the arm that has this ratio."""
    unit: str
    """What is selected together. token; word: whole words; span: spans of whole words, lengths by span_law; collocation: n-grams of 2 to 5
    words that PMI finds in the training text, and whole words elsewhere (PMI-masking, Levine et al. 2021)."""
    overshoot: str
    """What happens to a unit that would go over the row's count. skip: passed over for later ones that fit (BERT); stop: left out,
    and selection ends; cut: only what fits is selected (SpanBERT). Masks at a lower mask_ratio are subsets of those at a higher one, with
    the same seed, for stop, for cut, and for unit=token; with skip they nearly are."""
    span_law: str
    """Distribution of the span length n in words, unit=span, up to max_span_length and renormalised. geometric: span_p (1 - span_p)^(n - 1)
    (SpanBERT); inverse: 1 / n (ALBERT's n-gram masking, Lan et al. 2020, section 4.1, with max_span_length 3)."""
    span_p: float
    """Success probability of the geometric span length, in (0, 1) (SpanBERT: 0.2). Unused with other laws."""
    max_span_length: int
    """Longest span in words (SpanBERT: 10, which makes the mean of the geometric law 3.8; ALBERT: 3)."""
    frequency_exponent: float
    """More masks for rare words: units are drawn without replacement with weight (count of the token)^-exponent, a word's rarest token
    counting for it; in [0, 2]. 0: all alike. Counts are those of the training text."""
    mask_unknown: bool
    """Whether [UNK] may be selected, as in BERT's script. Transformers' collator counts it as special."""
    duplicates: int | None
    """Static masks: how many masks a row has in all; epoch e uses mask e mod duplicates (BERT: 10). null: a new one each epoch."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "replace_mix", tuple(self.replace_mix))
        require(*self.checks())

    def checks(self) -> tuple[Check, ...]:
        """What `errors.require` takes; objectives add those of their own fields, so that all mistakes are told at once."""
        mix, final = self.replace_mix, self.final_mask_ratio
        mix_holds = len(mix) == 3 and all(0 <= share <= 1 for share in mix) and abs(sum(mix) - 1) <= 1e-6
        needs_final = self.mask_schedule in MASK_SCHEDULES and self.mask_schedule != "constant"
        final_holds = not needs_final if final is None else 0 < final <= 1
        limit_holds = self.max_predictions is None or (self.max_predictions >= 1 and self.mask_count == "exact")
        return (
            ("mask_ratio", self.mask_ratio, 0 < self.mask_ratio <= 1, "in (0, 1]"),
            ("mask_schedule", self.mask_schedule, self.mask_schedule in MASK_SCHEDULES, one_of(*MASK_SCHEDULES)),
            ("final_mask_ratio", final, final_holds, "in (0, 1], or null with mask_schedule=constant"),
            ("replace_mix", list(mix), mix_holds, "[mask, random, keep], each in [0, 1], that sum to 1"),
            ("replace_unit", self.replace_unit, self.replace_unit in (*REPLACE_UNITS, None), one_of(*REPLACE_UNITS, "null")),
            ("mask_count", self.mask_count, self.mask_count in MASK_COUNTS, one_of(*MASK_COUNTS)),
            ("max_predictions", self.max_predictions, limit_holds, "at least 1 with mask_count=exact, or null"),
            ("predict_share", self.predict_share, 0 < self.predict_share <= 1, "in (0, 1]"),
            ("unit", self.unit, self.unit in unit_names(), one_of(*unit_names())),
            ("overshoot", self.overshoot, self.overshoot in OVERSHOOTS, one_of(*OVERSHOOTS)),
            ("span_law", self.span_law, self.span_law in SPAN_LAWS, one_of(*SPAN_LAWS)),
            ("span_p", self.span_p, 0 < self.span_p < 1, "in (0, 1)"),
            ("max_span_length", self.max_span_length, self.max_span_length >= 1, "at least 1"),
            ("frequency_exponent", self.frequency_exponent, 0 <= self.frequency_exponent <= 2, "in [0, 2]"),
            ("duplicates", self.duplicates, self.duplicates is None or self.duplicates >= 1, "at least 1, or null"),
        )

    @property
    def puts_masks(self) -> bool:
        """Whether the mask token ever stands in the text that the model reads."""
        return self.replace_mix[0] > 0

    @property
    def largest_mask_ratio(self) -> float:
        """Of the schedule."""
        return self.mask_ratio if self.mask_schedule == "constant" else max(self.mask_ratio, self.final_mask_ratio)

    def slots(self, max_length: int) -> int:
        """Label slots S of a row of max_length tokens: the same in every batch of a run."""
        ratio = self.largest_mask_ratio * self.predict_share
        return slot_capacity(max_length - FEWEST_SPECIALS, ratio, self.mask_count, self.max_predictions)

    def prepare(self, store: TokenStore, max_length: int) -> None:
        """Have what the recipe reads beside the rows (token counts, collocations) made and cached: objectives call it where they plan.

        Raises UserError: a span may be longer than a row has room for.
        """
        if find_unit(self.unit).longest(self) > max_length - FEWEST_SPECIALS:
            raise UserError(
                "a span may be longer than the text of a row",
                given=f"objective.max_span_length={self.max_span_length}, max_length={max_length}",
                allowed=f"objective.max_span_length of at most {max_length - FEWEST_SPECIALS}",
                fix="a smaller objective.max_span_length, or a larger max_length",
            )
        find_unit(self.unit).starts(store)
        if self.frequency_exponent:
            _ = store.token_counts

    def mask_rows(
        self, input_ids: np.ndarray, special: np.ndarray, source: np.ndarray, store: TokenStore, draws: Draws, keys: ExampleKeys
    ) -> Masked:
        """Mask rows of one length, a function of (rows, store, draws, keys, the recipe) alone.

        input_ids (B, L); special (B, L) bool: [CLS], [SEP], padding; source (B, L): each token's offset in the store, any
        offset where special.
        """
        epoch = keys.epoch if self.duplicates is None else keys.epoch % self.duplicates
        last = self.mask_ratio if self.final_mask_ratio is None else self.final_mask_ratio
        masked = mask_tokens(
            input_ids,
            special,
            find_unit(self.unit).starts(store)[source],
            self,
            store.vocabulary,
            draws,
            epoch,
            keys.index,
            self.slots(input_ids.shape[1]),
            ratios=scheduled_ratios(self.mask_schedule, self.mask_ratio, last, draws, keys.position, epoch, keys.index),
            weights=frequency_weights(store.token_counts, self.frequency_exponent)[input_ids] if self.frequency_exponent else None,
        )
        if not self.frequency_exponent:
            return masked
        return masked._replace(selected_by_frequency=count_by_frequency(input_ids, masked.selected, store.frequency_bins))


def one_of(*names: str) -> str:
    """a, b or c"""
    return ", ".join(names[:-1]) + " or " + names[-1]
