"""An encoder that Transformers has built (model=transformers): written as what it is, with the masked-token head if its kind has such."""

from __future__ import annotations

from typing import ClassVar

from mlm_lab.interchange.as_transformers import HEADS, HeadNames, has_our_activation
from mlm_lab.interchange.format import Format, Part, Source, hidden_answers, masked_lm_answers, token_ids
from mlm_lab.models.transformers_encoder import TransformersEncoder


class AsItIs(Format):
    name = "transformers"
    of = TransformersEncoder
    allowed: ClassVar = {}
    carries = frozenset({"encoder", "head"})
    readable = False

    def misfits(self, source: Source) -> list[str]:
        if not isinstance(source.encoder, self.of):
            return super().misfits(source)
        if source.encoder.theirs.is_encoder_decoder:
            return [f"model.config.model_type={source.encoder.theirs.model_type} (of an encoder-decoder only the encoder was trained)"]
        found = [f"the objective's {part} (there is no place for it)" for part in sorted(source.children - self.carries)]
        if "head" in source.children and _head_names(source) is None:
            found.append(f"the objective's head (that of {source.encoder.theirs.model_type} is another function)")
        return found

    def parts(self, source: Source) -> list[Part]:
        from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

        theirs, state = source.module.encoder.theirs, source.state
        prefix = f"{source.module.encoder.model.base_model_prefix}."
        encoder = "encoder.model."
        written = {f"{prefix}{name.removeprefix(encoder)}": tensor for name, tensor in state.items() if name.startswith(encoder)}
        architecture, answers = type(source.module.encoder.model).__name__, hidden_answers(source)
        if "head" in source.children:
            names = _head_names(source)
            for part in ("dense", "norm"):
                written |= {f"{getattr(names, part)}.{kind}": state[f"head.{part}.{kind}"] for kind in ("weight", "bias")}
            written[names.bias] = state["head.bias"]
            if "head.weight" in state:
                written |= {f"{names.matrix}.weight": state["head.weight"]}
            if f"{names.matrix}.bias" in _masked_lm_names(source):
                written[f"{names.matrix}.bias"] = state["head.bias"]
            architecture, answers = MODEL_FOR_MASKED_LM_MAPPING_NAMES[theirs.model_type], masked_lm_answers(source)
        config = {**theirs.to_diff_dict(), "model_type": theirs.model_type, "vocab_size": source.vocabulary.size}
        return [Part("", architecture, config | token_ids(source.vocabulary), written, answers)]


def _head_names(source: Source) -> HeadNames | None:
    """What the kind's masked-token head calls its parts; None where it is another function than ours."""
    if not has_our_activation(source.encoder):
        return None
    names = _masked_lm_names(source)
    return next((head for head in HEADS if f"{head.dense}.weight" in names and head.bias in names), None)


def _masked_lm_names(source: Source) -> frozenset[str]:
    """Of the tensors of the kind's masked language model."""
    import torch
    from transformers import AutoModelForMaskedLM

    with torch.device("meta"):
        return frozenset(AutoModelForMaskedLM.from_config(source.module.encoder.theirs).state_dict())


FORMAT = AsItIs()
