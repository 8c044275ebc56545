"""RoBERTa (Liu et al. 2019): BERT without segments; its positions are counted from the padding id on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from mlm_lab.interchange.format import Format, Part, Source, hidden_answers, masked_lm_answers, rename, rename_back
from mlm_lab.interchange.formats.bert import POST_NORM, encoder_names, not_gelu, output_matrix, post_norm_fields, segments, sizes
from mlm_lab.models.encoder_config import Encoder

if TYPE_CHECKING:
    from mlm_lab.interchange.format import State

POSITIONS = "roberta.embeddings.position_embeddings.weight"
SEGMENTS = "roberta.embeddings.token_type_embeddings.weight"
LM_HEAD = {"dense": "lm_head.dense", "norm": "lm_head.layer_norm"}


def lm_head(source: Source) -> State:
    """The masked-token head under RoBERTa's and MPNet's names."""
    state = rename(source.state, "head.", LM_HEAD, 1)
    state |= output_matrix(source, "lm_head.decoder")
    return state | {"lm_head.bias": state["lm_head.decoder.bias"]}


def read_lm_head(state: State) -> dict[str, State]:
    """The masked-token head, where there is one."""
    head = rename_back(state, LM_HEAD, 1)
    return {"head": head | {"bias": state["lm_head.bias"]}} if head and "lm_head.bias" in state else {}


class Roberta(Format):
    name = "roberta"
    prefix = "roberta."
    allowed: ClassVar = {**POST_NORM, "positions": ("learned",), "relative_bias": ("none",), "type_vocab_size": (0,)}
    carries = frozenset({"encoder", "head", "boundary_head"})

    def parts(self, source: Source) -> list[Part]:
        import torch

        encoder, first = source.encoder, source.vocabulary.pad_id + 1
        state = rename(source.state, "encoder.", encoder_names("roberta."), encoder.num_layers)
        state |= segments(source, "roberta.embeddings.token_type_embeddings", encoder.hidden_size)
        state[POSITIONS] = torch.cat([torch.zeros(first, encoder.hidden_size), state[POSITIONS]])
        config = {"model_type": "roberta", **sizes(source), "max_position_embeddings": encoder.max_positions + first}
        if "head" not in source.children:
            return [Part("", "RobertaModel", config, state, hidden_answers(source))]
        return [Part("", "RobertaForMaskedLM", config, state | lm_head(source), masked_lm_answers(source))]

    def describe(self, config: Mapping[str, Any]) -> dict[str, Any]:
        first = config.get("pad_token_id", 1) + 1
        return post_norm_fields(config) | {"max_positions": config["max_position_embeddings"] - first, "type_vocab_size": 0}

    def refused(self, config: Mapping[str, Any]) -> list[str]:
        return not_gelu(config)

    def read(self, state: State, encoder: Encoder) -> dict[str, State]:
        """Its one segment embedding goes into the table of positions, as every token has it."""
        first = len(state[POSITIONS]) - encoder.max_positions
        found = rename_back(state, encoder_names(self.prefix), encoder.num_layers)
        del found["embeddings.types.weight"]
        found["embeddings.positions.weight"] = state[POSITIONS][first:] + state[SEGMENTS]
        return {"encoder": found, **read_lm_head(state)}


FORMAT = Roberta()
