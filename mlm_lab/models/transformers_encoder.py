"""The description of an encoder that Transformers builds: what its config.json says, and what our heads ask of it.

FOLDER/config.json -> TransformersEncoder.config -> build -> WrappedEncoder (transformers_module.py), which is called as our own encoder is
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from mlm_lab.errors import UserError, require

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from mlm_lab.models.transformer import Embeddings
    from mlm_lab.models.transformers_module import WrappedEncoder
    from mlm_lab.types import Vocabulary

CONFIG = "config.json"
NOT_THE_MODEL = ("architectures", "transformers_version", "_name_or_path", "torch_dtype", "dtype", "auto_map", "id2label", "label2id")
"""Keys of a config.json that say nothing of an encoder in float32."""
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
"""Transformers' names -> those of our heads."""


@dataclass(frozen=True, kw_only=True)
class TransformersEncoder:
    """An encoder of the Transformers library, for our objectives and our evaluation: DeBERTa's disentangled attention (He et al. 2021), or
    whatever else has no counterpart in `Encoder`. It has random weights; `pretrained=FOLDER` chooses it where it has to, with its weights.

    Of an encoder-decoder it is the encoder. It stays bidirectional, and has neither a generator nor a decoder made after it: mlm, mlm_nsp
    and sop can train it. A row of several documents is read document by document, unless its own code takes such rows as ours does (which
    is tried out: `transformers_module`).
    """

    name_or_path: str | None
    """A Hugging Face folder, or a name on the hub, whose config.json says what the encoder is. null: `config` says it."""
    config: dict[str, Any]
    """Keys of config.json to set otherwise, as model.config.num_hidden_layers=2. A run folder's config.yaml has all of them here, and needs
    the folder no more."""

    norm: ClassVar[str] = "layer"
    bias: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if "model_type" not in self.config:
            named = ("name_or_path", self.name_or_path, self.name_or_path is not None, "a Hugging Face folder, or config.model_type")
            require(named)
            described = {name: value for name, value in _read_config(self.name_or_path).items() if name not in NOT_THE_MODEL}
            object.__setattr__(self, "config", {**described, **self.config})
        self._check_kind()

    def _check_kind(self) -> None:
        if not self.is_known or self.config.get("is_decoder"):
            raise UserError(
                "Transformers has no encoder of this kind",
                where=self.name_or_path and str(Path(self.name_or_path) / CONFIG),
                given=f"model_type={self.config.get('model_type')}{', is_decoder=true' if self.config.get('is_decoder') else ''}",
                allowed="the kinds of its AutoModelForMaskedLM, and encoder-decoders (code that a folder brings along is not run)",
            )

    @property
    def is_known(self) -> bool:
        """Whether Transformers has an encoder of this kind."""
        try:
            from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES
        except ImportError:
            raise UserError("the model is one of Transformers, which is not installed", fix="pip install 'mlm_lab[hf]'") from None
        return self.config.get("model_type") in MODEL_FOR_MASKED_LM_MAPPING_NAMES or self.has_encoder_class

    @property
    def has_encoder_class(self) -> bool:
        """Whether Transformers has the encoder of this encoder-decoder as a class of its own (T5)."""
        from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES

        return MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.get(self.config.get("model_type"), "").endswith("EncoderModel")

    def fingerprint(self) -> str:
        """Digest of what the encoder is, wherever its folder lies."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()

    @cached_property
    def theirs(self) -> PreTrainedConfig:
        """As Transformers' own object.

        Raises UserError where a value is not one that it takes.
        """
        from transformers import AutoConfig

        values = dict(self.config)
        try:
            return AutoConfig.for_model(values.pop("model_type"), **values)
        except Exception as error:  # its validation has exceptions of its own
            reason = str(error).strip().splitlines()
            raise UserError("Transformers refuses this model.config", given=" ".join(reason[:3])) from None

    @property
    def hidden_size(self) -> int:
        return self.theirs.hidden_size

    @property
    def num_layers(self) -> int:
        return self.theirs.num_hidden_layers

    @property
    def num_heads(self) -> int:
        return self.theirs.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """Of the token embeddings, at which the masked-token head works."""
        return getattr(self.theirs, "embedding_size", None) or self.hidden_size

    @property
    def tie_output(self) -> bool:
        return bool(getattr(self.theirs, "tie_word_embeddings", True))

    @property
    def activation(self) -> str:
        """Of our heads: theirs where ours can be the same, else GELU."""
        return ACTIVATIONS.get(str(getattr(self.theirs, "hidden_act", "gelu")), "gelu")

    @property
    def norm_eps(self) -> float:
        return getattr(self.theirs, "layer_norm_eps", None) or getattr(self.theirs, "layer_norm_epsilon", None) or 1e-12

    @property
    def initializer_range(self) -> float:
        return getattr(self.theirs, "initializer_range", None) or 0.02

    def check_length(self, length: int, where: str = "max_length") -> None:
        """Raise UserError where the encoder has fewer positions than rows have tokens. where: what asks for them."""
        longest = getattr(self.theirs, "max_position_embeddings", None)
        if longest and longest > 0 and length > longest:
            raise UserError(
                "the model has too few positions for such long rows",
                where=where,
                given=f"rows of {length} tokens, model.config.max_position_embeddings={longest}",
                fix=f"rows of {longest} tokens or less",
            )

    def scaled(self, ratio: float) -> NoReturn:
        """Raises UserError: nobody can say in general how another library's encoder is made narrower."""
        raise UserError("an encoder of Transformers has no narrower copy, which a generator would be", **_instead(self.config))

    def build(self, vocabulary: Vocabulary, *, causal: bool = False, embeddings: Embeddings | None = None) -> WrappedEncoder:
        """Make the module with random weights, drawn from torch's global generator as Transformers draws them.

        Raises UserError where an objective asks for what only ours can be: left to right, or with another encoder's embeddings.
        """
        if causal or embeddings is not None:
            raise UserError("an encoder of Transformers reads both ways, and shares its embeddings with none", **_instead(self.config))
        from mlm_lab.models.transformers_module import WrappedEncoder

        return WrappedEncoder(replace(self, name_or_path=None), vocabulary)


def _instead(config: dict[str, Any]) -> dict[str, str]:
    return {"given": f"model_type={config.get('model_type')}", "fix": "objective=mlm, mlm_nsp or sop; or a model of ours, as model=small"}


def _read_config(name_or_path: str) -> dict[str, Any]:
    """The content of a config.json: of a folder, or from the hub (or its cache)."""
    folder = Path(name_or_path).expanduser()
    if not folder.is_dir():
        from transformers import AutoConfig

        try:
            return AutoConfig.from_pretrained(name_or_path).to_dict()
        except (OSError, ValueError) as error:
            raise UserError(
                "there is no such folder, and the hub does not give it",
                given=f"model.name_or_path={name_or_path}",
                allowed=str(error).strip().splitlines()[0],
                fix="a folder, as `hf download NAME --local-dir FOLDER` makes one",
            ) from None
    try:
        content = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError("config.json cannot be read", where=str(folder / CONFIG), given=str(error)) from None
    if not isinstance(content, dict):
        raise UserError("config.json holds no mapping", where=str(folder / CONFIG))
    return content
