"""Replaced token detection: tell which tokens a small generator put in the place of the original ones (ELECTRA: Clark et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mlm_lab.corruption.recipe import Check, MaskingRecipe, one_of
from mlm_lab.data.packing import INPUT_FORMATS, PackedRows
from mlm_lab.errors import UserError
from mlm_lab.objectives.mlm import MLM
from mlm_lab.types import Batch, ExampleKeys, Objective, ObjectiveModule, Vocabulary

if TYPE_CHECKING:
    from mlm_lab.corruption.draws import Draws
    from mlm_lab.data.token_store import TokenStore
    from mlm_lab.models.encoder_config import Encoder

UNIFORM_BITS = 24
"""Of a float32 below 1: what a device multiplies and compares without rounding it up to 1."""


@dataclass(frozen=True, kw_only=True)
class RTD(MaskingRecipe):
    """A generator is trained on masked language modelling; each selected token is replaced by one that the generator samples; the
    discriminator, which is the encoder that is fine-tuned and exported, is trained to tell the replaced tokens from the original ones.

    ELECTRA (Clark et al. 2020), where the defaults are from: 15 % selected, 85 % of them masked and 15 % unchanged, a generator of a
    quarter of the width, weight 50. generator_ratio and discriminator_weight are its own keys, beside those of `MLM`.

    The loss is the generator's mean over the selected tokens plus discriminator_weight times the discriminator's mean over all tokens,
    [CLS] and [SEP] included, padding not (section 3.1). A sample that hits the original token counts as original. Nothing flows from the
    discriminator back into the generator but through the embeddings, which both share. A step costs the discriminator's forward and
    backward passes, and generator_ratio^2 of those in the layers once more, and the projection to the vocabulary at the selected tokens.

    Rows and masks are those of `MLM` with the same fields. The probes mlm_15_generator and mlm_40_generator are measured on the generator,
    so they stand in columns of their own: at a quarter of the width it is not what another arm's encoder does. Batches hold, beside what
    those of `MLM` do:

    sampling_uniforms  (B, S) float32   in [0, 1): where in the generator's distribution each slot's token is taken
    """

    input_format: str
    """How rows are filled. full_sentences: whole sentences, across documents; document_sentences: a row ends with its document;
    contiguous: to the last place, sentences cut."""
    cross_document_attention: bool
    """Whether the documents of a row see each other, in the generator and in the discriminator. Positions then run on through the row;
    otherwise they restart at each document."""
    generator_ratio: float
    """Width of the generator (heads, hidden_size, intermediate_size) as a share of the model's, in (0, 1]; it has as many layers. ELECTRA:
    1/4 (small), 1/3 (base: 0.333), 1/4 (large, with mask_ratio 0.25)."""
    discriminator_weight: float
    """Weight of the discriminator's loss beside the generator's, above 0 (ELECTRA: 50)."""

    code_version: ClassVar[int] = 1
    """Raised when the same fields come to mean other batches: part of the run's hash."""

    def checks(self) -> tuple[Check, ...]:
        every_token = "1: the discriminator's input has no masks, so each selected token is one that the generator predicts"
        not_wider = "in (0, 1]: a generator is no wider than its discriminator"
        return (
            *super().checks(),
            ("predict_share", self.predict_share, self.predict_share == 1, every_token),
            ("input_format", self.input_format, self.input_format in INPUT_FORMATS, one_of(*INPUT_FORMATS)),
            ("generator_ratio", self.generator_ratio, 0 < self.generator_ratio <= 1, not_wider),
            ("discriminator_weight", self.discriminator_weight, self.discriminator_weight > 0, "above 0"),
        )

    @cached_property
    def masked_lm(self) -> MLM:
        """What the generator learns: masked language modelling by the same recipe."""
        recipe = {field.name: getattr(self, field.name) for field in fields(MaskingRecipe)}
        rows = {"input_format": self.input_format, "cross_document_attention": self.cross_document_attention}
        return MLM(**recipe, **rows, span_boundary_weight=0.0)

    def plan(self, store: TokenStore, max_length: int, draws: Draws) -> PackedRows:
        """Lay out an epoch of packed rows. Raises UserError as `MLM.plan`."""
        return self.masked_lm.plan(store, max_length, draws)

    def make_batch(self, store: TokenStore, plan: PackedRows, keys: ExampleKeys) -> Batch:
        """Make the batch of these examples, a function of (plan, keys, the recipe) alone.

        A token's uniform is drawn for its place in the row and for the epoch, also with static masks.
        """
        batch = self.masked_lm.make_batch(store, plan, keys)
        drawn = plan.draws.uniform(keys.epoch, keys.index, "generator sample", batch["label_positions"])
        steps = 2.0**UNIFORM_BITS
        return {**batch, "sampling_uniforms": (np.floor(drawn * steps) / steps).astype(np.float32)}

    def build(self, model: Encoder, vocabulary: Vocabulary) -> ObjectiveModule:
        """Make discriminator (`encoder`) and generator, each with its head.

        Raises:
            UserError: generator_ratio does not divide the model's heads and feed-forward width.
        """
        from mlm_lab.objectives.rtd_module import ReplacedTokenDetection

        return ReplacedTokenDetection(model, self.generator(model), vocabulary, self.discriminator_weight, self.puts_masks)

    def generator(self, model: Encoder) -> Encoder:
        """The generator to a discriminator. Its output is tied to the word embeddings whatever the model says of its own."""
        try:
            return replace(model.scaled(self.generator_ratio), tie_output=True)
        except UserError as error:
            raise UserError(error.problem, where="objective.generator_ratio", given=error.given, allowed=error.allowed) from None

    def probes(self) -> dict[str, Objective]:
        """mlm_15_generator, mlm_40_generator: the masks of every arm's mlm_15 and mlm_40, filled by the generator."""
        return {f"{name}_generator": probe for name, probe in self.masked_lm.probes().items()}
