"""BERT (Devlin et al. 2019): post-norm, learned positions, segments; with its masked-token head, its pair head, or left to right."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch

from mlm_lab.export.format import (
    Format,
    Inputs,
    Part,
    Source,
    State,
    encode,
    hidden_answers,
    masked_lm_answers,
    rename,
    token_ids,
)

POST_NORM = {
    "share_layers": (False,),
    "activation": ("gelu",),
    "norm": ("layer",),
    "norm_position": ("post",),
    "embedding_norm": (True,),
    "final_norm": (False,),
    "bias": (True,),
    "local_window": (None,),
}
"""What BERT, RoBERTa, ELECTRA and MPNet have in common."""


def layer_names(theirs: str) -> dict[str, str]:
    """Our modules -> BERT's, in a layer whose prefix is `theirs`."""
    return {
        "layers.{}.attention.qkv": ",".join(f"{theirs}attention.self.{part}" for part in ("query", "key", "value")),
        "layers.{}.attention.out": f"{theirs}attention.output.dense",
        "layers.{}.attention_norm": f"{theirs}attention.output.LayerNorm",
        "layers.{}.feed_forward.up": f"{theirs}intermediate.dense",
        "layers.{}.feed_forward.down": f"{theirs}output.dense",
        "layers.{}.feed_forward_norm": f"{theirs}output.LayerNorm",
    }


def encoder_names(prefix: str) -> dict[str, str]:
    """Our modules -> BERT's, under `prefix` such as "bert."."""
    return {
        "embeddings.tokens": f"{prefix}embeddings.word_embeddings",
        "embeddings.positions": f"{prefix}embeddings.position_embeddings",
        "embeddings.types": f"{prefix}embeddings.token_type_embeddings",
        "embeddings.norm": f"{prefix}embeddings.LayerNorm",
        **layer_names(f"{prefix}encoder.layer.{{}}."),
    }


def sizes(source: Source) -> dict[str, object]:
    """The config fields that the BERT family shares."""
    encoder = source.encoder
    return {
        "vocab_size": source.vocabulary.size,
        "hidden_size": encoder.hidden_size,
        "num_hidden_layers": encoder.num_layers,
        "num_attention_heads": encoder.num_heads,
        "intermediate_size": encoder.intermediate_size,
        "hidden_act": "gelu",
        "max_position_embeddings": encoder.max_positions,
        "type_vocab_size": max(1, encoder.type_vocab_size),
        "layer_norm_eps": encoder.norm_eps,
        "initializer_range": encoder.initializer_range,
        "hidden_dropout_prob": encoder.hidden_dropout,
        "attention_probs_dropout_prob": encoder.attention_dropout,
        "tie_word_embeddings": encoder.tie_output,
        **token_ids(source.vocabulary),
    }


def output_matrix(source: Source, theirs: str, head: str = "head.") -> State:
    """The head's bias, and its matrix where it is not tied, as the linear layer `theirs`."""
    state = source.state
    matrix = {f"{theirs}.weight": state[f"{head}weight"]} if f"{head}weight" in state else {}
    return {f"{theirs}.bias": state[f"{head}bias"], **matrix}


def segments(source: Source, name: str, width: int) -> State:
    """A table of segments that adds nothing, for a model that has none."""
    return {} if source.encoder.type_vocab_size else {f"{name}.weight": torch.zeros(1, width)}


class Bert(Format):
    name = "bert"
    allowed: ClassVar = {**POST_NORM, "positions": ("learned",), "relative_bias": ("none",), "type_vocab_size": (1, 2)}
    carries = frozenset({"encoder", "head", "pair", "boundary_head"})
    causal = True
    takes_segments = True

    def parts(self, source: Source) -> list[Part]:
        state = rename(source.state, "encoder.", encoder_names("bert."), source.encoder.num_layers)
        heads, architecture, answers = source.children, "BertModel", hidden_answers(source)
        if "head" in heads:
            names = {"dense": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"}
            state |= rename(source.state, "head.", names, 1) | output_matrix(source, "cls.predictions.decoder")
            state["cls.predictions.bias"] = state["cls.predictions.decoder.bias"]
            architecture, answers = ("BertLMHeadModel" if source.causal else "BertForMaskedLM"), masked_lm_answers(source)
        if "pair" in heads:
            state |= rename(source.state, "pair.head.", {"dense": "bert.pooler.dense", "out": "cls.seq_relationship"}, 1)
            architecture = "BertForPreTraining" if "head" in heads else "BertForNextSentencePrediction"
            answers = pair_answers(source, "prediction_logits", "seq_relationship_logits" if "head" in heads else "logits")
        config = {"model_type": "bert", **sizes(source), "is_decoder": source.causal, "use_cache": False}
        return [Part("", architecture, config, state, answers)]


def pair_answers(source: Source, token_field: str, pair_field: str) -> Callable[[Inputs], dict[str, torch.Tensor]]:
    """Logits of the pair's label (B, 2), and of the masked tokens where there is a head for them."""

    def answers(inputs: Inputs) -> dict[str, torch.Tensor]:
        module = source.module
        found = {pair_field: module.pair.head(encode(module.encoder, inputs))}
        if "head" in source.children:
            found[token_field] = masked_lm_answers(source)(inputs)["logits"]
        return found

    return answers


FORMAT = Bert()
