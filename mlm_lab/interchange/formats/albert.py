"""ALBERT (Lan et al. 2020): one layer's weights for all layers, factorised embeddings; with the heads for masked tokens and order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from mlm_lab.interchange.format import Format, Part, Source, hidden_answers, masked_lm_answers, rename, rename_back, token_ids
from mlm_lab.interchange.formats.bert import POST_NORM, not_gelu, output_matrix, pair_answers, post_norm_fields, segments, sizes
from mlm_lab.models.encoder_config import Encoder

if TYPE_CHECKING:
    from mlm_lab.interchange.format import State

LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0."
PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
NAMES = {
    "embeddings.tokens": "albert.embeddings.word_embeddings",
    "embeddings.positions": "albert.embeddings.position_embeddings",
    "embeddings.types": "albert.embeddings.token_type_embeddings",
    "embeddings.norm": "albert.embeddings.LayerNorm",
    "embedding_projection": PROJECTION,
    "layers.0.attention.qkv": ",".join(f"{LAYER}attention.{part}" for part in ("query", "key", "value")),
    "layers.0.attention.out": f"{LAYER}attention.dense",
    "layers.0.attention_norm": f"{LAYER}attention.LayerNorm",
    "layers.0.feed_forward.up": f"{LAYER}ffn",
    "layers.0.feed_forward.down": f"{LAYER}ffn_output",
    "layers.0.feed_forward_norm": f"{LAYER}full_layer_layer_norm",
}


PREDICTIONS = {"dense": "predictions.dense", "norm": "predictions.LayerNorm"}
PAIR = {"dense": "albert.pooler", "out": "sop_classifier.classifier"}


class Albert(Format):
    name = "albert"
    prefix = "albert."
    allowed: ClassVar = {
        **POST_NORM,
        "share_layers": (True,),
        "positions": ("learned",),
        "relative_bias": ("none",),
        "tie_output": (True,),
    }
    carries = frozenset({"encoder", "head", "pair", "boundary_head"})
    factorised = True
    takes_segments = True

    def parts(self, source: Source) -> list[Part]:
        encoder, heads = source.encoder, source.children
        state = rename(source.state, "encoder.", NAMES, 1)
        state |= segments(source, "albert.embeddings.token_type_embeddings", encoder.embedding_width)
        if encoder.embedding_width == encoder.hidden_size:  # ours then has no projection
            import torch

            state |= {f"{PROJECTION}.weight": torch.eye(encoder.hidden_size), f"{PROJECTION}.bias": torch.zeros(encoder.hidden_size)}
        architecture, answers = "AlbertModel", hidden_answers(source)
        if "head" in heads:
            state |= rename(source.state, "head.", PREDICTIONS, 1)
            state |= output_matrix(source, "predictions.decoder")
            state["predictions.bias"] = state["predictions.decoder.bias"]
            architecture, answers = "AlbertForMaskedLM", masked_lm_answers(source)
        if "pair" in heads:
            state |= rename(source.state, "pair.head.", PAIR, 1)
        if {"head", "pair"} <= heads:
            architecture, answers = "AlbertForPreTraining", pair_answers(source, "prediction_logits", "sop_logits")
        config = {
            "model_type": "albert",
            **sizes(source),
            "embedding_size": encoder.embedding_width,
            "num_hidden_groups": 1,
            "inner_group_num": 1,
            "classifier_dropout_prob": encoder.hidden_dropout,
            **token_ids(source.vocabulary),
        }
        if architecture == "AlbertModel":
            state = {name.removeprefix("albert."): tensor for name, tensor in state.items() if name.startswith("albert.")}
        return [Part("", architecture, config, state, answers)]

    def describe(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return post_norm_fields(config) | {
            "share_layers": True,
            "embedding_size": config.get("embedding_size", 128),
            "hidden_dropout": config.get("hidden_dropout_prob", 0.0),
            "attention_dropout": config.get("attention_probs_dropout_prob", 0.0),
        }

    def refused(self, config: Mapping[str, Any]) -> list[str]:
        several = [f"{key}={config[key]}" for key in ("num_hidden_groups", "inner_group_num") if config.get(key, 1) != 1]
        return [*not_gelu(config), *several]

    def read(self, state: State, encoder: Encoder) -> dict[str, State]:
        found = {"encoder": rename_back(state, NAMES, 1)}
        if encoder.embedding_width == encoder.hidden_size:
            found["encoder"] = {name: tensor for name, tensor in found["encoder"].items() if "embedding_projection" not in name}
        if "predictions.bias" in state:
            found["head"] = rename_back(state, PREDICTIONS, 1) | {"bias": state["predictions.bias"]}
        if "sop_classifier.classifier.weight" in state:
            found["pair"] = {f"head.{name}": tensor for name, tensor in rename_back(state, PAIR, 1).items()}
        return found


FORMAT = Albert()
