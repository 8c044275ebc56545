"""ModernBERT (Warner et al. 2024): pre-norm, rotary positions, GeGLU, no biases, with or without local layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from mlm_lab.interchange.format import Format, Part, Source, hidden_answers, masked_lm_answers, rename, rename_back, token_ids
from mlm_lab.interchange.formats.bert import output_matrix
from mlm_lab.models.encoder_config import Encoder

if TYPE_CHECKING:
    from mlm_lab.interchange.format import State

LAYER = "model.layers.{}."
NAMES = {
    "embeddings.tokens": "model.embeddings.tok_embeddings",
    "embeddings.norm": "model.embeddings.norm",
    "layers.{}.attention.qkv": LAYER + "attn.Wqkv",
    "layers.{}.attention.out": LAYER + "attn.Wo",
    "layers.{}.attention_norm": LAYER + "attn_norm",
    "layers.{}.feed_forward.up": LAYER + "mlp.Wi",
    "layers.{}.feed_forward.down": LAYER + "mlp.Wo",
    "layers.{}.feed_forward_norm": LAYER + "mlp_norm",
    "final_norm": "model.final_norm",
}


HEAD = {"dense": "head.dense", "norm": "head.norm"}


class ModernBert(Format):
    name = "modernbert"
    prefix = "model."
    allowed: ClassVar = {
        "share_layers": (False,),
        "activation": ("geglu",),
        "norm": ("layer",),
        "norm_position": ("pre",),
        "embedding_norm": (True,),
        "final_norm": (True,),
        "bias": (False,),
        "positions": ("rotary",),
        "relative_bias": ("none",),
        "type_vocab_size": (0,),
    }
    carries = frozenset({"encoder", "head", "boundary_head"})

    def parts(self, source: Source) -> list[Part]:
        state = rename(source.state, "encoder.", NAMES, source.encoder.num_layers)
        if "head" not in source.children:
            return [Part("", "ModernBertModel", _config(source), state, hidden_answers(source))]
        state |= rename(source.state, "head.", HEAD, 1) | output_matrix(source, "decoder")
        return [Part("", "ModernBertForMaskedLM", _config(source), state, masked_lm_answers(source))]

    def describe(self, config: Mapping[str, Any]) -> dict[str, Any]:
        kinds = config.get("layer_types") or []
        rotary = config.get("rope_parameters") or {}
        bases = {kind: rotary.get(kind, {}).get("rope_theta") for kind in ("full_attention", "sliding_attention")}
        local = "sliding_attention" in kinds or not kinds
        return {
            "hidden_size": config["hidden_size"],
            "num_layers": config["num_hidden_layers"],
            "share_layers": False,
            "num_heads": config["num_attention_heads"],
            "intermediate_size": config["intermediate_size"],
            "embedding_size": None,
            "tie_output": config.get("tie_word_embeddings", True),
            "activation": "geglu",
            "norm": "layer",
            "norm_position": "pre",
            "embedding_norm": True,
            "final_norm": True,
            "norm_eps": config.get("norm_eps", 1e-5),
            "bias": False,
            "positions": "rotary",
            "max_positions": config.get("max_position_embeddings", 8192),
            "rotary_base": bases["full_attention"] or config.get("global_rope_theta", 160_000.0),
            "relative_bias": "none",
            "relative_buckets": 32,
            "relative_max_distance": 128,
            "local_window": config.get("local_attention", 128) if local else None,
            "global_every": global_every(kinds) or config.get("global_attn_every_n_layers", 3),
            "local_rotary_base": bases["sliding_attention"] or config.get("local_rope_theta", 10_000.0),
            "type_vocab_size": 0,
            "initializer_range": config.get("initializer_range", 0.02),
            "hidden_dropout": config.get("mlp_dropout", 0.0),
            "attention_dropout": config.get("attention_dropout", 0.0),
        }

    def refused(self, config: Mapping[str, Any]) -> list[str]:
        biases = [f"{key}=true" for key in ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias") if config.get(key)]
        kinds = config.get("layer_types") or []
        regular = not kinds or kinds == [
            "sliding_attention" if number % global_every(kinds) else "full_attention" for number in range(len(kinds))
        ]
        return [
            *biases,
            *([f"hidden_activation={act}"] if (act := config.get("hidden_activation", "gelu")) != "gelu" else []),
            *([] if regular else ["layer_types (not every n-th is global)"]),
        ]

    def read(self, state: State, encoder: Encoder) -> dict[str, State]:
        found = {"encoder": rename_back(state, NAMES, encoder.num_layers)}
        if "decoder.bias" in state:
            found["head"] = rename_back(state, HEAD, 1) | {"bias": state["decoder.bias"]}
        return found


def global_every(kinds: Sequence[str]) -> int:
    """Each so many layers is a global one, the first among them; 0: no layers are named."""
    after_first = [number for number, kind in enumerate(kinds) if kind == "full_attention" and number > 0]
    return after_first[0] if after_first else len(kinds)


def _config(source: Source) -> dict[str, object]:
    encoder = source.encoder
    kinds = ["sliding_attention" if encoder.is_local(layer) else "full_attention" for layer in range(encoder.num_layers)]
    bases = {"full_attention": encoder.rotary_base, "sliding_attention": encoder.local_rotary_base or encoder.rotary_base}
    return {
        "model_type": "modernbert",
        "vocab_size": source.vocabulary.size,
        "hidden_size": encoder.hidden_size,
        "intermediate_size": encoder.intermediate_size,
        "num_hidden_layers": encoder.num_layers,
        "num_attention_heads": encoder.num_heads,
        "max_position_embeddings": max(encoder.max_positions, source.max_length),
        "layer_types": kinds,
        "local_attention": encoder.local_window or source.max_length,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        "norm_eps": encoder.norm_eps,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "decoder_bias": True,
        "initializer_range": encoder.initializer_range,
        "attention_dropout": encoder.attention_dropout,
        "embedding_dropout": encoder.hidden_dropout,
        "mlp_dropout": encoder.hidden_dropout,
        "tie_word_embeddings": encoder.tie_output,
        **token_ids(source.vocabulary),
    }


FORMAT = ModernBert()
