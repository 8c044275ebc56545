"""RoBERTa (Liu et al. 2019): BERT without segments; its positions are counted from the padding id on."""

from __future__ import annotations

from typing import ClassVar

import torch

from mlm_lab.export.format import Format, Part, Source, State, hidden_answers, masked_lm_answers, rename
from mlm_lab.export.formats.bert import POST_NORM, encoder_names, output_matrix, segments, sizes

POSITIONS = "roberta.embeddings.position_embeddings.weight"


def lm_head(source: Source) -> State:
    """The masked-token head under RoBERTa's and MPNet's names."""
    state = rename(source.state, "head.", {"dense": "lm_head.dense", "norm": "lm_head.layer_norm"}, 1)
    state |= output_matrix(source, "lm_head.decoder")
    return state | {"lm_head.bias": state["lm_head.decoder.bias"]}


class Roberta(Format):
    name = "roberta"
    allowed: ClassVar = {**POST_NORM, "positions": ("learned",), "relative_bias": ("none",), "type_vocab_size": (0,)}
    carries = frozenset({"encoder", "head", "boundary_head"})

    def parts(self, source: Source) -> list[Part]:
        encoder, first = source.encoder, source.vocabulary.pad_id + 1
        state = rename(source.state, "encoder.", encoder_names("roberta."), encoder.num_layers)
        state |= segments(source, "roberta.embeddings.token_type_embeddings", encoder.hidden_size)
        state[POSITIONS] = torch.cat([torch.zeros(first, encoder.hidden_size), state[POSITIONS]])
        config = {"model_type": "roberta", **sizes(source), "max_position_embeddings": encoder.max_positions + first}
        if "head" not in source.children:
            return [Part("", "RobertaModel", config, state, hidden_answers(source))]
        return [Part("", "RobertaForMaskedLM", config, state | lm_head(source), masked_lm_answers(source))]


FORMAT = Roberta()
