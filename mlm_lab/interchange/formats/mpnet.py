"""MPNet (Song et al. 2020): BERT with a relative-position bias that all layers share, with or without absolute positions.

Transformers' MPNet has no segments: the first segment's embedding, which every token of a model without pairs has, goes into the table of
positions. A model without absolute positions has the same row everywhere there. That table is counted from padding_idx + 1 = 2 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from mlm_lab.interchange.format import Format, Part, Source, hidden_answers, masked_lm_answers, rename, rename_back, token_ids
from mlm_lab.interchange.formats.bert import POST_NORM, encoder_names, not_gelu, post_norm_fields, sizes
from mlm_lab.interchange.formats.roberta import lm_head, read_lm_head
from mlm_lab.models.encoder_config import Encoder

if TYPE_CHECKING:
    import torch

    from mlm_lab.interchange.format import State

PADDING_INDEX = 1
"""Fixed in Transformers: where the ids equal it, no position is counted."""
BUCKETS, MAX_DISTANCE = 32, 128
"""Fixed in Transformers, whatever its config says."""

POSITIONS = "mpnet.embeddings.position_embeddings.weight"


class MPNet(Format):
    name = "mpnet"
    prefix = "mpnet."
    allowed: ClassVar = {
        **POST_NORM,
        "positions": ("learned", "none"),
        "relative_bias": ("zero", "neighbours", "matches"),
        "relative_buckets": (BUCKETS,),
        "relative_max_distance": (MAX_DISTANCE,),
    }
    carries = frozenset({"encoder", "head", "boundary_head"})

    def misfits(self, source: Source) -> list[str]:
        found, encoder = super().misfits(source), source.encoder
        if encoder.positions == "learned" and source.vocabulary.pad_id != PADDING_INDEX:
            found.append(f"model.positions=learned with the padding token {source.vocabulary.pad_id} (mpnet has {PADDING_INDEX})")
        return found

    def parts(self, source: Source) -> list[Part]:
        encoder = source.encoder
        state = rename(source.state, "encoder.", _names(), encoder.num_layers)
        state[POSITIONS] = positions = _positions(source)
        config = {"model_type": "mpnet", **sizes(source), "max_position_embeddings": len(positions)}
        config |= {"relative_attention_num_buckets": BUCKETS, **token_ids(source.vocabulary)}
        del config["type_vocab_size"]
        if "head" not in source.children:
            return [Part("", "MPNetModel", config, state, hidden_answers(source))]
        return [Part("", "MPNetForMaskedLM", config, state | lm_head(source), masked_lm_answers(source))]

    def describe(self, config: Mapping[str, Any]) -> dict[str, Any]:
        first = PADDING_INDEX + 1
        return post_norm_fields(config) | {
            "max_positions": config["max_position_embeddings"] - first,
            "type_vocab_size": 0,
            "relative_bias": "zero",
        }

    def refused(self, config: Mapping[str, Any]) -> list[str]:
        return not_gelu(config)

    def read(self, state: State, encoder: Encoder) -> dict[str, State]:
        found = rename_back(state, _names(), encoder.num_layers)
        found["embeddings.positions.weight"] = state[POSITIONS][PADDING_INDEX + 1 :]
        return {"encoder": found, **read_lm_head(state)}


def _names() -> dict[str, str]:
    attention = "mpnet.encoder.layer.{}.attention."
    names = {ours: theirs for ours, theirs in encoder_names("mpnet.").items() if ours not in ("embeddings.types", "embeddings.positions")}
    return names | {
        "layers.{}.attention.qkv": ",".join(f"{attention}attn.{part}" for part in "qkv"),
        "layers.{}.attention.out": f"{attention}attn.o",
        "layers.{}.attention_norm": f"{attention}LayerNorm",
        "relative_bias": "mpnet.encoder.relative_attention_bias",
    }


def _positions(source: Source) -> torch.Tensor:
    """(positions + 2, D)"""
    import torch

    state, encoder, first = source.state, source.encoder, PADDING_INDEX + 1
    segment = state["encoder.embeddings.types.weight"][0] if encoder.type_vocab_size else torch.zeros(encoder.hidden_size)
    table = state["encoder.embeddings.positions.weight"] if encoder.positions == "learned" else torch.zeros(encoder.max_positions, 1)
    return torch.cat([segment.expand(first, -1), table + segment])


FORMAT = MPNet()
