"""ModernBERT (Warner et al. 2024): pre-norm, rotary positions, GeGLU, no biases, with or without local layers."""

from __future__ import annotations

from typing import ClassVar

from mlm_lab.export.format import Format, Part, Source, hidden_answers, masked_lm_answers, rename, token_ids
from mlm_lab.export.formats.bert import output_matrix

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


class ModernBert(Format):
    name = "modernbert"
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
        state |= rename(source.state, "head.", {"dense": "head.dense", "norm": "head.norm"}, 1) | output_matrix(source, "decoder")
        return [Part("", "ModernBertForMaskedLM", _config(source), state, masked_lm_answers(source))]


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
