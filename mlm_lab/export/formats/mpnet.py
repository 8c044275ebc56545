"""MPNet (Song et al. 2020): BERT with a relative-position bias that all layers share, with or without absolute positions.

Transformers' MPNet has no segments: the first segment's embedding, which every token of a model without pairs has, goes into the table of
positions. A model without absolute positions has the same row everywhere there. That table is counted from padding_idx + 1 = 2 on.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from mlm_lab.export.format import Format, Part, Source, hidden_answers, masked_lm_answers, rename, token_ids
from mlm_lab.export.formats.bert import POST_NORM, encoder_names, sizes
from mlm_lab.export.formats.roberta import lm_head

PADDING_INDEX = 1
"""Fixed in Transformers: where the ids equal it, no position is counted."""
BUCKETS, MAX_DISTANCE = 32, 128
"""Fixed in Transformers, whatever its config says."""


class MPNet(Format):
    name = "mpnet"
    allowed: ClassVar = {
        **POST_NORM,
        "positions": ("learned", "none"),
        "relative_bias": ("zero", "neighbours"),
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
        state["mpnet.embeddings.position_embeddings.weight"] = positions = _positions(source)
        config = {"model_type": "mpnet", **sizes(source), "max_position_embeddings": len(positions)}
        config |= {"relative_attention_num_buckets": BUCKETS, **token_ids(source.vocabulary)}
        del config["type_vocab_size"]
        if "head" not in source.children:
            return [Part("", "MPNetModel", config, state, hidden_answers(source))]
        return [Part("", "MPNetForMaskedLM", config, state | lm_head(source), masked_lm_answers(source))]


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
    state, encoder, first = source.state, source.encoder, PADDING_INDEX + 1
    segment = state["encoder.embeddings.types.weight"][0] if encoder.type_vocab_size else torch.zeros(encoder.hidden_size)
    table = state["encoder.embeddings.positions.weight"] if encoder.positions == "learned" else torch.zeros(encoder.max_positions, 1)
    return torch.cat([segment.expand(first, -1), table + segment])


FORMAT = MPNet()
