"""The weights of a folder whose encoder Transformers builds: by its own means for the encoder, by their names for the masked-token head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mlm_lab.errors import UserError
from mlm_lab.models.transformers_encoder import ACTIVATIONS

if TYPE_CHECKING:
    from mlm_lab.interchange.format import State
    from mlm_lab.models.transformers_encoder import TransformersEncoder
    from mlm_lab.models.transformers_module import WrappedEncoder


class HeadNames(NamedTuple):
    """What a masked-token head that computes as ours does (dense, activation, norm, projection) is called in a state."""

    dense: str
    norm: str
    bias: str
    matrix: str
    """Where it is not tied to the embeddings."""


HEADS = (
    HeadNames("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias", "cls.predictions.decoder"),
    HeadNames("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm", "lm_predictions.lm_head.bias", ""),
    HeadNames("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder"),
    HeadNames("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias", "generator_lm_head"),
    HeadNames("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector"),
)
"""BERT and DeBERTa; DeBERTa-v2 in its newer form; RoBERTa, XLM-R and MPNet; ELECTRA's generator; DistilBERT."""


def read(folder: Path, tensors: State, encoder: WrappedEncoder) -> dict[str, State]:
    """Part of a module (encoder, head) -> its tensors, for the parts that the folder has. tensors: all of the folder's, as they are named.

    Raises UserError where the folder lacks a part of the encoder.
    """
    from transformers import AutoModel, AutoModelForTextEncoding
    from transformers.utils import logging

    from mlm_lab.models.transformers_module import bare

    kind = AutoModelForTextEncoding if encoder.config.has_encoder_class else AutoModel
    logging.set_verbosity_error()  # what is missing is said by whoever asks, and nothing else is
    logging.disable_progress_bar()
    whole, info = kind.from_pretrained(folder, use_safetensors=True, local_files_only=True, output_loading_info=True)
    model = bare(whole.float())
    state = model.state_dict()
    prefix = next(f"{name}." if name else "" for name, part in whole.named_modules() if part is model)
    if lost := [name for name in info["missing_keys"] if name.startswith(prefix) and name.removeprefix(prefix) in state]:
        raise UserError("the folder has not all of the encoder", where=str(folder), given=", ".join(sorted(lost)[:4]))
    return {"encoder": {f"model.{name}": tensor for name, tensor in state.items()}, **_head(tensors, encoder)}


def has_our_activation(encoder: TransformersEncoder) -> bool:
    """Whether the kind's heads have an activation that ours can have."""
    return getattr(encoder.theirs, "hidden_act", "gelu") in ACTIVATIONS


def _head(tensors: State, encoder: WrappedEncoder) -> dict[str, State]:
    """The head under our names; {} where the folder has none that ours can be."""
    if not has_our_activation(encoder.config):
        return {}
    for names in HEADS:
        ours = {f"{part}.{kind}": f"{getattr(names, part)}.{kind}" for part in ("dense", "norm") for kind in ("weight", "bias")} | {
            "bias": names.bias
        }
        if not encoder.config.tie_output:
            ours["weight"] = f"{names.matrix}.weight"
        if f"{names.matrix}.bias" in tensors:  # where the matrix is not tied, neither is the bias that stands beside the head
            ours["bias"] = f"{names.matrix}.bias"
        if all(theirs in tensors for theirs in ours.values()):
            return {"head": {name: tensors[theirs] for name, theirs in ours.items()}}
    return {}
