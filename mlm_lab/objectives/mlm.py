"""Masked language modelling: predict the tokens that were masked (BERT: Devlin et al. 2019, section 3.1, Task 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from mlm_lab.corruption.counts import MASK_COUNTS
from mlm_lab.corruption.masking import capacity, mask_tokens, unit_names
from mlm_lab.corruption.replacement import REPLACE_UNITS
from mlm_lab.data.packing import INPUT_FORMATS, SPECIALS, PackedRows, gather_rows, pack_rows
from mlm_lab.errors import UserError, require
from mlm_lab.types import Batch, ExampleKeys, ObjectiveModule, Vocabulary

if TYPE_CHECKING:
    from mlm_lab.corruption.draws import Draws
    from mlm_lab.data.token_store import TokenStore
    from mlm_lab.models.encoder_config import Encoder

OVERSHOOTS = ("skip", "stop", "cut")


@dataclass(frozen=True, kw_only=True)
class MLM:
    """Select a share of the tokens, replace them, predict the originals at those places.

    Batches hold, beside what `types.Batch` lists:

    label_kinds    (B, S) int8    what became of each slot's token: 1 mask, 2 random, 3 kept; 0 unused slot
    dropped_slots  (B,) int64     tokens that were to be selected but found no slot (bernoulli counts, fewer than one row in 10**8)
    corpus_tokens  (B,) int64     the row's tokens without special tokens
    """

    mask_ratio: float
    """Share of the candidates (all but special tokens and padding) that are selected, in (0, 1]."""
    replace_mix: tuple[float, float, float]
    """Shares of the selected that become [mask token, random token, stay unchanged]; they sum to 1."""
    replace_unit: str | None
    """token: each token draws from the mix by itself; word: a word draws once for all its selected tokens; null: word where whole words
    are selected (units word and span), token else."""
    mask_count: str
    """Tokens selected in a row of n candidates. exact: round(mask_ratio * n); bernoulli: as if each flipped a coin; stochastic:
    floor(mask_ratio * n + u)."""
    unit: str
    """What is selected together. token; word: whole words; span: spans of whole words, lengths as in SpanBERT."""
    overshoot: str
    """What happens to a word or span that would go over the row's count. skip: passed over for later ones that fit (BERT); stop: left out,
    and selection ends; cut: only what fits is selected (SpanBERT). Masks at a lower mask_ratio are subsets of those at a higher one, with
    the same seed, for stop, for cut, and for unit=token; with skip they nearly are."""
    span_p: float
    """Success probability of the geometric span length in words, unit=span (SpanBERT: 0.2)."""
    max_span_length: int
    """Longest span in words; the geometric distribution is cut off there and renormalised (SpanBERT: 10, which makes the mean 3.8)."""
    mask_unknown: bool
    """Whether [UNK] may be selected, as in BERT's script. Transformers' collator counts it as special."""
    duplicates: int | None
    """Static masks: how many masks a row has in all; epoch e uses mask e mod duplicates (BERT: 10). null: a new one each epoch."""
    input_format: str
    """How rows are filled. full_sentences: whole sentences, across documents (RoBERTa); document_sentences: a row ends with its document;
    contiguous: to the last place, sentences cut."""
    cross_document_attention: bool
    """Whether the documents of a row see each other (as in BERT and RoBERTa). Positions then run on through the row, since tokens that see
    each other need places that differ; otherwise they restart at each document. The tokens of a row are the same either way."""

    code_version: ClassVar[int] = 1
    """Raised when the same fields come to mean other batches: part of the run's hash."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "replace_mix", tuple(self.replace_mix))
        mix = self.replace_mix
        mix_holds = len(mix) == 3 and all(0 <= share <= 1 for share in mix) and abs(sum(mix) - 1) <= 1e-6
        require(
            ("mask_ratio", self.mask_ratio, 0 < self.mask_ratio <= 1, "in (0, 1]"),
            ("replace_mix", list(mix), mix_holds, "[mask, random, keep], each in [0, 1], that sum to 1"),
            ("replace_unit", self.replace_unit, self.replace_unit in (*REPLACE_UNITS, None), _one_of(*REPLACE_UNITS, "null")),
            ("mask_count", self.mask_count, self.mask_count in MASK_COUNTS, _one_of(*MASK_COUNTS)),
            ("unit", self.unit, self.unit in unit_names(), _one_of(*unit_names())),
            ("overshoot", self.overshoot, self.overshoot in OVERSHOOTS, _one_of(*OVERSHOOTS)),
            ("span_p", self.span_p, 0 < self.span_p < 1, "in (0, 1)"),
            ("max_span_length", self.max_span_length, self.max_span_length >= 1, "at least 1"),
            ("duplicates", self.duplicates, self.duplicates is None or self.duplicates >= 1, "at least 1, or null"),
            ("input_format", self.input_format, self.input_format in INPUT_FORMATS, _one_of(*INPUT_FORMATS)),
        )

    def slots(self, max_length: int) -> int:
        """Label slots S of a row of max_length tokens: the same in every batch of a run."""
        return capacity(self, max_length - SPECIALS)

    def plan(self, store: TokenStore, max_length: int, draws: Draws) -> PackedRows:
        """Lay out an epoch of packed rows (`data.packing`).

        Raises:
            UserError: rows have no room for a token, or the split has too few tokens for a row.
        """
        if max_length <= SPECIALS:
            raise UserError(
                "a row has no room for a token between [CLS] and [SEP]", where="max_length", given=max_length, allowed="3 or more"
            )
        plan = pack_rows(store, max_length, self.input_format, draws)
        if len(plan) == 0:
            raise UserError(
                f"the {store.split} split is too small: it has no document of two tokens or more",
                given=f"{store.num_documents} documents, {len(store.tokens)} tokens",
                fix="give more text in data.files",
            )
        return plan

    def make_batch(self, store: TokenStore, plan: PackedRows, keys: ExampleKeys) -> Batch:
        """Make the batch of these examples, a function of (plan, keys, the recipe) alone."""
        rows = gather_rows(store, plan, keys.index)
        epoch = keys.epoch if self.duplicates is None else keys.epoch % self.duplicates
        masked = mask_tokens(
            rows.input_ids,
            rows.special,
            store.word_starts[rows.source],
            self,
            store.vocabulary,
            plan.draws,
            epoch,
            keys.index,
            self.slots(plan.max_length),
        )
        attention_mask, position_ids = rows.attention_mask, rows.position_ids
        if self.cross_document_attention:
            attention_mask, position_ids = rows.as_one_document()
        return {
            "input_ids": masked.input_ids,
            "attention_mask": attention_mask,
            "position_ids": position_ids,
            "label_positions": masked.label_positions,
            "labels": masked.labels,
            "label_kinds": masked.label_kinds,
            "dropped_slots": masked.dropped,
            "corpus_tokens": plan.stops[keys.index] - plan.starts[keys.index],
        }

    def build(self, model: Encoder, vocabulary: Vocabulary) -> ObjectiveModule:
        """Make encoder and masked-token head."""
        from mlm_lab.objectives.mlm_module import MaskedLM

        return MaskedLM(model, vocabulary)

    def probes(self) -> dict[str, MLM]:
        """mlm_15: 15 % of single tokens, 80/10/10, over the same rows for every arm; only whether documents see each other is the arm's."""
        standard = {"mask_ratio": 0.15, "replace_mix": (0.8, 0.1, 0.1), "replace_unit": "token", "mask_count": "exact", "unit": "token"}
        rows = {"mask_unknown": True, "duplicates": None, "input_format": "full_sentences"}
        return {"mlm_15": replace(self, **standard, **rows)}


def _one_of(*names: str) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1]
