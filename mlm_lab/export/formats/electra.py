"""ELECTRA (Clark et al. 2020): the discriminator, and its generator in generator/; or a masked model with narrower embeddings alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import torch

from mlm_lab.export.format import Format, Inputs, Part, Source, encode, masked_lm_answers, rename
from mlm_lab.export.formats.bert import POST_NORM, encoder_names, segments, sizes
from mlm_lab.models.encoder_config import Encoder

NAMES = {**encoder_names("electra."), "embedding_projection": "electra.embeddings_project"}
PREDICTIONS = {"dense": "generator_predictions.dense", "norm": "generator_predictions.LayerNorm"}


class Electra(Format):
    name = "electra"
    allowed: ClassVar = {**POST_NORM, "positions": ("learned",), "relative_bias": ("none",), "tie_output": (True,)}
    carries = frozenset({"encoder", "head", "generator", "generator_head"})
    factorised = True
    takes_segments = True

    def misfits(self, source: Source) -> list[str]:
        found = super().misfits(source)
        if "generator" not in source.children and source.encoder.embedding_width == source.encoder.hidden_size:
            found.append("a masked model without a generator and with embeddings as wide as its layers (that is bert)")
        return found

    def parts(self, source: Source) -> list[Part]:
        if "generator" not in source.children:
            return [self._masked_lm(source, source.encoder, "", "encoder", "head")]
        state = self._encoder(source, source.encoder, "encoder")
        names = {"dense": "discriminator_predictions.dense", "out": "discriminator_predictions.dense_prediction"}
        state = state | rename(source.state, "head.", names, 1)
        discriminator = Part("", "ElectraForPreTraining", self._config(source, source.encoder), state, _detection(source))
        return [discriminator, self._masked_lm(source, source.module.generator.config, "generator", "generator", "generator_head")]

    def _masked_lm(self, source: Source, encoder: Encoder, folder: str, model: str, head: str) -> Part:
        state = self._encoder(source, encoder, model) | rename(source.state, f"{head}.", PREDICTIONS, 1)
        state["generator_lm_head.bias"] = source.state[f"{head}.bias"]
        return Part(folder, "ElectraForMaskedLM", self._config(source, encoder), state, masked_lm_answers(source, model, head))

    def _encoder(self, source: Source, encoder: Encoder, model: str) -> dict[str, torch.Tensor]:
        state = rename(source.state, f"{model}.", NAMES, encoder.num_layers)
        return state | segments(source, "electra.embeddings.token_type_embeddings", encoder.embedding_width)

    def _config(self, source: Source, encoder: Encoder) -> dict[str, object]:
        of_this = replace(source, module=_Described(encoder))
        return {"model_type": "electra", **sizes(of_this), "embedding_size": encoder.embedding_width}


class _Described:
    """Stands for a module where just its encoder's description is asked for."""

    def __init__(self, config: Encoder):
        self.encoder = self
        self.config = config


def _detection(source: Source) -> Callable[[Inputs], dict[str, torch.Tensor]]:
    return lambda inputs: {"logits": source.module.head(encode(source.module.encoder, inputs))}


FORMAT = Electra()
