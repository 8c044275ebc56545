"""ELECTRA (Clark et al. 2020): the discriminator, and its generator in generator/; or a masked model with narrower embeddings alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from mlm_lab.interchange.format import Format, Part, Source, encode, hidden_answers, masked_lm_answers, rename, rename_back
from mlm_lab.interchange.formats.bert import POST_NORM, encoder_names, not_gelu, post_norm_fields, segments, sizes
from mlm_lab.models.encoder_config import Encoder

if TYPE_CHECKING:
    import torch

    from mlm_lab.interchange.format import Inputs, State

NAMES = {**encoder_names("electra."), "embedding_projection": "electra.embeddings_project"}
PREDICTIONS = {"dense": "generator_predictions.dense", "norm": "generator_predictions.LayerNorm"}

DETECTION = {"dense": "discriminator_predictions.dense", "out": "discriminator_predictions.dense_prediction"}


class Electra(Format):
    name = "electra"
    prefix = "electra."
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
        if "head" not in source.children:
            state = self._encoder(source, source.encoder, "encoder")
            return [Part("", "ElectraModel", self._config(source, source.encoder), state, hidden_answers(source))]
        if "generator" not in source.children:
            return [self._masked_lm(source, source.encoder, "", "encoder", "head")]
        state = self._encoder(source, source.encoder, "encoder")
        state = state | rename(source.state, "head.", DETECTION, 1)
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

    def describe(self, config: Mapping[str, Any]) -> dict[str, Any]:
        width = config.get("embedding_size", config["hidden_size"])
        return post_norm_fields(config) | {"embedding_size": None if width == config["hidden_size"] else width}

    def refused(self, config: Mapping[str, Any]) -> list[str]:
        return not_gelu(config)

    def read(self, state: State, encoder: Encoder) -> dict[str, State]:
        """Of a discriminator its head, of a generator (or a masked model) the masked-token head: one folder has one of them."""
        found = {"encoder": rename_back(state, NAMES, encoder.num_layers)}
        if "generator_lm_head.bias" in state:
            found["head"] = rename_back(state, PREDICTIONS, 1) | {"bias": state["generator_lm_head.bias"]}
        elif detection := rename_back(state, DETECTION, 1):
            found["head"] = detection
        return found


class _Described:
    """Stands for a module where just its encoder's description is asked for."""

    def __init__(self, config: Encoder):
        self.encoder = self
        self.config = config


def _detection(source: Source) -> Callable[[Inputs], dict[str, torch.Tensor]]:
    return lambda inputs: {"logits": source.module.head(encode(source.module.encoder, inputs))}


FORMAT = Electra()
