"""T5 (Raffel et al. 2020): encoder and decoder with a relative bias, pre-norm with RMS norms, no biases.

T5 does not scale the attention scores, and scales the decoder's output by hidden_size^-0.5. Ours does the first and not the second: the
queries are divided by head_size^0.5 here, and the decoder's last norm multiplied by hidden_size^0.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from mlm_lab.interchange.format import Format, Part, Source, encode, hidden_answers, rename
from mlm_lab.models.encoder_config import Encoder

if TYPE_CHECKING:
    import torch

    from mlm_lab.interchange.format import Inputs, State

SELF, CROSS = "{}.block.{{}}.layer.0.SelfAttention.", "{}.block.{{}}.layer.1.EncDecAttention."


class T5(Format):
    name = "t5"
    readable = False
    allowed: ClassVar = {
        "share_layers": (False,),
        "activation": ("relu",),
        "norm": ("rms",),
        "norm_position": ("pre",),
        "embedding_norm": (False,),
        "final_norm": (True,),
        "bias": (False,),
        "positions": ("none",),
        "relative_bias": ("zero",),  # the neighbours' start has a bias in the cross-attention too
        "local_window": (None,),
        "type_vocab_size": (0,),
        "tie_output": (True,),
    }
    carries = frozenset({"encoder", "decoder", "projection"})

    def misfits(self, source: Source) -> list[str]:
        found = super().misfits(source)
        if "decoder" not in source.module._modules:
            found.append("an objective without a decoder (t5 has one: objective=span_corruption)")
        return found

    def parts(self, source: Source) -> list[Part]:
        encoder, layers = source.encoder, source.encoder.num_layers
        state = rename(source.state, "encoder.", _names("encoder", False), layers)
        state["shared.weight"] = source.state["encoder.embeddings.tokens.weight"]
        if "decoder" not in source.children:
            return [Part("", "T5EncoderModel", _config(source), _unscaled(state, encoder), hidden_answers(source))]
        state = _unscaled(state | rename(source.state, "decoder.", _names("decoder", True), layers), encoder)
        state["decoder.final_layer_norm.weight"] = state["decoder.final_layer_norm.weight"] * encoder.hidden_size**0.5
        return [Part("", "T5ForConditionalGeneration", _config(source), state, _answers(source), lambda inputs, answer: answer)]


def _unscaled(state: State, encoder: Encoder) -> State:
    """With queries for scores that are not scaled."""
    scale = (encoder.hidden_size // encoder.num_heads) ** -0.5
    return {name: tensor * scale if name.endswith("Attention.q.weight") else tensor for name, tensor in state.items()}


def _names(stack: str, cross: bool) -> dict[str, str]:
    block = f"{stack}.block.{{}}.layer."
    attention, feed_forward = SELF.format(stack), f"{block}{1 + cross}."
    names = {
        "layers.{}.attention.qkv": ",".join(f"{attention}{part}" for part in "qkv"),
        "layers.{}.attention.out": f"{attention}o",
        "layers.{}.attention_norm": f"{block}0.layer_norm",
        "layers.{}.feed_forward.up": f"{feed_forward}DenseReluDense.wi",
        "layers.{}.feed_forward.down": f"{feed_forward}DenseReluDense.wo",
        "layers.{}.feed_forward_norm": f"{feed_forward}layer_norm",
        "relative_bias": f"{attention.format(0)}relative_attention_bias",
        "final_norm": f"{stack}.final_layer_norm",
    }
    if cross:
        memory = CROSS.format(stack)
        names |= {
            "layers.{}.cross_attention.q": f"{memory}q",
            "layers.{}.cross_attention.kv": f"{memory}k,{memory}v",
            "layers.{}.cross_attention.out": f"{memory}o",
            "layers.{}.cross_norm": f"{block}1.layer_norm",
        }
    return names


def _config(source: Source) -> dict[str, object]:
    encoder, vocabulary = source.encoder, source.vocabulary
    return {
        "model_type": "t5",
        "vocab_size": vocabulary.size,
        "d_model": encoder.hidden_size,
        "d_kv": encoder.hidden_size // encoder.num_heads,
        "d_ff": encoder.intermediate_size,
        "num_layers": encoder.num_layers,
        "num_decoder_layers": encoder.num_layers,
        "num_heads": encoder.num_heads,
        "relative_attention_num_buckets": encoder.relative_buckets,
        "relative_attention_max_distance": encoder.relative_max_distance,
        "dropout_rate": encoder.hidden_dropout,
        "layer_norm_epsilon": encoder.norm_eps,
        "feed_forward_proj": "relu",
        "pad_token_id": vocabulary.pad_id,
        "eos_token_id": vocabulary.sep_id,
        "decoder_start_token_id": vocabulary.pad_id,
    }


def _answers(source: Source) -> Callable[[Inputs], dict[str, torch.Tensor]]:
    """Logits of a decoder that is given the inputs once more: (B, L, V)."""

    def answers(inputs: Inputs) -> dict[str, torch.Tensor]:
        module, memory = source.module, encode(source.module.encoder, inputs)
        given = inputs["decoder_input_ids"]
        places = module.gap_places({"input_ids": inputs["input_ids"], "decoder_input_ids": given})
        hidden = module.decoder(given, given.new_ones(given.shape), memory, inputs["attention_mask"], places)
        logits = module.projection(hidden.flatten(0, 1), module.encoder.embedding_weight).unflatten(0, given.shape)
        return {"logits": logits[..., : source.vocabulary.size]}

    return answers


FORMAT = T5()
