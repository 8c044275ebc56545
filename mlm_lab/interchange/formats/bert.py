"""BERT (Devlin et al. 2019): post-norm, learned positions, segments; with its masked-token head, its pair head, or left to right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from mlm_lab.interchange.format import (
    Format,
    Part,
    Source,
    encode,
    hidden_answers,
    masked_lm_answers,
    rename,
    rename_back,
    token_ids,
)
from mlm_lab.models.encoder_config import Encoder

if TYPE_CHECKING:
    import torch

    from mlm_lab.interchange.format import Inputs, State

POST_NORM = {
    "share_layers": (False,),
    "activation": ("gelu", "gelu_tanh"),
    "norm": ("layer",),
    "norm_position": ("post",),
    "embedding_norm": (True,),
    "final_norm": (False,),
    "bias": (True,),
    "local_window": (None,),
}
"""What BERT, RoBERTa, ELECTRA and MPNet have in common."""


PREDICTIONS = {"dense": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"}
PAIR = {"dense": "bert.pooler.dense", "out": "cls.seq_relationship"}


ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
"""Transformers' names -> ours."""


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
        "hidden_act": "gelu_new" if encoder.activation == "gelu_tanh" else "gelu",
        "max_position_embeddings": encoder.max_positions,
        "type_vocab_size": max(1, encoder.type_vocab_size),
        "layer_norm_eps": encoder.norm_eps,
        "initializer_range": encoder.initializer_range,
        "hidden_dropout_prob": encoder.hidden_dropout,
        "attention_probs_dropout_prob": encoder.attention_dropout,
        "tie_word_embeddings": encoder.tie_output,
        **token_ids(source.vocabulary),
    }


def post_norm_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Encoder` for a model of the BERT family."""
    return {
        "hidden_size": config["hidden_size"],
        "num_layers": config["num_hidden_layers"],
        "share_layers": False,
        "num_heads": config["num_attention_heads"],
        "intermediate_size": config["intermediate_size"],
        "embedding_size": None,
        "tie_output": config.get("tie_word_embeddings", True),
        "activation": ACTIVATIONS.get(config.get("hidden_act", "gelu"), "gelu"),
        "norm": "layer",
        "norm_position": "post",
        "embedding_norm": True,
        "final_norm": False,
        "norm_eps": config.get("layer_norm_eps", 1e-12),
        "bias": True,
        "positions": "learned",
        "max_positions": config["max_position_embeddings"],
        "rotary_base": 10_000.0,
        "relative_bias": "none",
        "relative_buckets": 32,
        "relative_max_distance": 128,
        "local_window": None,
        "global_every": 3,
        "local_rotary_base": None,
        "type_vocab_size": config.get("type_vocab_size", 2),
        "initializer_range": config.get("initializer_range", 0.02),
        "hidden_dropout": config.get("hidden_dropout_prob", 0.1),
        "attention_dropout": config.get("attention_probs_dropout_prob", 0.1),
    }


def not_gelu(config: Mapping[str, Any], key: str = "hidden_act") -> list[str]:
    """The activation, where it is no GELU."""
    return [] if config.get(key, "gelu") in ACTIVATIONS else [f"{key}={config[key]} (known: {', '.join(ACTIVATIONS)})"]


def output_matrix(source: Source, theirs: str, head: str = "head.") -> State:
    """The head's bias, and its matrix where it is not tied, as the linear layer `theirs`."""
    state = source.state
    matrix = {f"{theirs}.weight": state[f"{head}weight"]} if f"{head}weight" in state else {}
    return {f"{theirs}.bias": state[f"{head}bias"], **matrix}


def segments(source: Source, name: str, width: int) -> State:
    """A table of segments that adds nothing, for a model that has none."""
    if source.encoder.type_vocab_size:
        return {}
    return {f"{name}.weight": source.state["encoder.embeddings.tokens.weight"].new_zeros(1, width)}


class Bert(Format):
    name = "bert"
    prefix = "bert."
    allowed: ClassVar = {**POST_NORM, "positions": ("learned",), "relative_bias": ("none",), "type_vocab_size": (1, 2)}
    carries = frozenset({"encoder", "head", "pair", "boundary_head"})
    causal = True
    takes_segments = True

    def parts(self, source: Source) -> list[Part]:
        state = rename(source.state, "encoder.", encoder_names("bert."), source.encoder.num_layers)
        heads, architecture, answers = source.children, "BertModel", hidden_answers(source)
        if "head" in heads:
            state |= rename(source.state, "head.", PREDICTIONS, 1) | output_matrix(source, "cls.predictions.decoder")
            state["cls.predictions.bias"] = state["cls.predictions.decoder.bias"]
            architecture, answers = ("BertLMHeadModel" if source.causal else "BertForMaskedLM"), masked_lm_answers(source)
        if "pair" in heads:
            state |= rename(source.state, "pair.head.", PAIR, 1)
            architecture = "BertForPreTraining" if "head" in heads else "BertForNextSentencePrediction"
            answers = pair_answers(source, "prediction_logits", "seq_relationship_logits" if "head" in heads else "logits")
        config = {"model_type": "bert", **sizes(source), "is_decoder": source.causal, "use_cache": False}
        return [Part("", architecture, config, state, answers)]

    def describe(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return post_norm_fields(config)

    def refused(self, config: Mapping[str, Any]) -> list[str]:
        kind = config.get("position_embedding_type", "absolute")
        return [*not_gelu(config), *([f"position_embedding_type={kind}"] if kind != "absolute" else [])]

    def read(self, state: State, encoder: Encoder) -> dict[str, State]:
        found = {"encoder": rename_back(state, encoder_names(self.prefix), encoder.num_layers)}
        if "cls.predictions.bias" in state:
            own = {} if encoder.tie_output else {"weight": state["cls.predictions.decoder.weight"]}
            # Where the matrix is not tied, neither is the bias that stands beside the head.
            bias = state.get("cls.predictions.decoder.bias", state["cls.predictions.bias"])
            found["head"] = rename_back(state, PREDICTIONS, 1) | {"bias": bias, **own}
        if "cls.seq_relationship.weight" in state:
            found["pair"] = {f"head.{name}": tensor for name, tensor in rename_back(state, PAIR, 1).items()}
        return found


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
