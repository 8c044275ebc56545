"""What a Hugging Face format is to us: which of our models it can express, how they are written in it, and how its models are read.

    Source (a finished run's module) -> Format.misfits      what the format cannot say, key by key
                                     -> Format.parts        one folder each: config, state dict, and what the loaded model has to answer
    their config.json                -> Format.describe     the fields of `Encoder`
    their tensors                    -> Format.read         ours, for each part of a module that they have

A format is one file in interchange/formats/ whose `FORMAT` is its instance; nothing else knows its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.transformers_encoder import TransformersEncoder
from mlm_lab.types import ObjectiveModule, Vocabulary

if TYPE_CHECKING:
    import torch

    State = dict[str, torch.Tensor]
    Inputs = Mapping[str, torch.Tensor]

OVER_VOCABULARY = ("embeddings.tokens.weight", "head.bias", "head.weight", "projection.weight")
"""How the names of the tensors end that have a row for each row of the vocabulary."""


@dataclass(frozen=True)
class Source:
    """A finished run, ready to be written in another format."""

    module: ObjectiveModule
    """On the CPU, in evaluation mode, float32."""
    vocabulary: Vocabulary
    max_length: int
    """Tokens of the rows that it was trained on."""
    encoder_only: bool = False
    """Whether heads, generator and decoder are left behind."""

    @property
    def encoder(self) -> Encoder | TransformersEncoder:
        return self.module.encoder.config

    @property
    def causal(self) -> bool:
        return self.module.encoder.causal

    @property
    def children(self) -> set[str]:
        """The parts that the module is made of: encoder, head, pair, generator, ..."""
        parts = {name for name, part in self.module.named_children() if any(True for _ in part.parameters())}
        return {"encoder"} if self.encoder_only else parts

    @property
    def state(self) -> State:
        """The module's tensors; those over the vocabulary are cut to the ids that the tokenizer has."""
        state = {name: tensor.detach() for name, tensor in self.module.state_dict().items()}
        over = (*OVER_VOCABULARY, embedding_name(self.module.encoder))
        return {name: tensor[: self.vocabulary.size] if name.endswith(over) else tensor for name, tensor in state.items()}


def embedding_name(encoder: torch.nn.Module) -> str:
    """Of the token embeddings among the encoder's parameters."""
    return next(name for name, parameter in encoder.named_parameters() if parameter is encoder.embedding_weight)


@dataclass(frozen=True)
class Part:
    """One model of Transformers: a folder with config.json and model.safetensors."""

    folder: str
    """Where it goes, relative to the output folder; "" is the folder itself."""
    architecture: str
    """Transformers' class."""
    config: dict[str, Any]
    """Arguments of Transformers' config class, which `model_type` names."""
    state: State
    answers: Callable[[Inputs], dict[str, torch.Tensor]]
    """Ours, for (B, L) input_ids and attention_mask and what else the format takes: field of Transformers' output -> tensor."""
    compared_where: Callable[[Inputs, torch.Tensor], torch.Tensor] = lambda inputs, answer: _real(inputs, answer)
    """The part of an answer that counts: all positions that are not padding."""


class Format:
    """Base of every format."""

    name: ClassVar[str]
    """As Transformers spells it (`model_type`)."""
    of: ClassVar[type] = Encoder
    """The class of the descriptions that it is written from."""
    allowed: ClassVar[Mapping[str, tuple]]
    """Field of `Encoder` -> the values that the format can express. Others are free."""
    carries: ClassVar[frozenset[str]]
    """Parts of a module that the format has a place for."""
    causal: ClassVar[bool] = False
    """Whether a left-to-right model can be expressed."""
    readable: ClassVar[bool] = True
    """Whether its models can be started from."""
    factorised: ClassVar[bool] = False
    """Whether the embeddings may be narrower than the layers."""
    prefix: ClassVar[str]
    """Before the names of the encoder's tensors, in a model with a head."""
    takes_segments: ClassVar[bool] = False
    """Whether its models take token_type_ids."""

    def misfits(self, source: Source) -> list[str]:
        """What the format cannot express, each as "key=value (what it has instead)"; empty: it can be written."""
        if not isinstance(source.encoder, self.of):
            return [f"a model of the class {type(source.encoder).__name__} ({self.name} is written from {self.of.__name__})"]
        found = [
            f"model.{field}={value} ({self.name} has {' or '.join(map(str, values))})"
            for field, values in self.allowed.items()
            if (value := getattr(source.encoder, field)) not in values
        ]
        if not self.factorised and source.encoder.embedding_width != source.encoder.hidden_size:
            found.append(f"model.embedding_size={source.encoder.embedding_size} ({self.name} has that of hidden_size)")
        found += [f"the objective's {part} ({self.name} has none)" for part in sorted(source.children - self.carries)]
        if source.causal and not self.causal:
            found.append(f"a left-to-right encoder, as this objective trains one ({self.name} reads both ways)")
        return found

    def parts(self, source: Source) -> list[Part]:
        """The models to write. Called only without misfits."""
        raise NotImplementedError

    def describe(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `Encoder`, from the content of a config.json. What it cannot be asked is in `refused`."""
        raise NotImplementedError

    def refused(self, config: Mapping[str, Any]) -> list[str]:
        """What the config asks of a model that ours cannot do, each as key=value."""
        return []

    def read(self, state: State, encoder: Encoder) -> dict[str, State]:
        """Part of a module (encoder, head, ...) -> its tensors, for the parts that the state has. All of theirs have `prefix`."""
        raise NotImplementedError


def rename(state: State, ours: str, names: Mapping[str, str], num_layers: int) -> State:
    """The tensors under the prefix `ours` under their new names. names: our module -> theirs; several of theirs, separated by commas, share
    our matrix out in equal parts, top to bottom; {} is the layer's number. A layer that ours repeats has its number 0.

    What `names` does not name is left out.
    """
    renamed = {}
    for module, theirs in names.items():
        for layer in range(num_layers) if "{}" in module else [0]:
            for kind in ("weight", "bias"):
                tensor = state.get(f"{ours}{module.format(layer)}.{kind}")
                if tensor is None:
                    continue
                targets = [name.format(layer) for name in theirs.split(",")]
                for target, piece in zip(targets, tensor.chunk(len(targets)), strict=True):
                    renamed[f"{target}.{kind}"] = piece.contiguous()
    return renamed


def rename_back(state: State, names: Mapping[str, str], num_layers: int) -> State:
    """Theirs under our names: the inverse of `rename`. What `names` does not name, or the state has not, is left out."""
    import torch

    renamed = {}
    for module, theirs in names.items():
        for layer in range(num_layers) if "{}" in module else [0]:
            for kind in ("weight", "bias"):
                pieces = [state[name] for target in theirs.split(",") if (name := f"{target.format(layer)}.{kind}") in state]
                if pieces:
                    renamed[f"{module.format(layer)}.{kind}"] = torch.cat(pieces)
    return renamed


def token_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """The ids that a Transformers config names."""
    return {
        "pad_token_id": vocabulary.pad_id,
        "bos_token_id": vocabulary.cls_id,
        "cls_token_id": vocabulary.cls_id,
        "eos_token_id": vocabulary.sep_id,
        "sep_token_id": vocabulary.sep_id,
        "mask_token_id": vocabulary.mask_id,
    }


def masked_lm_answers(source: Source, encoder: str = "encoder", head: str = "head") -> Callable[[Inputs], dict[str, torch.Tensor]]:
    """Logits of a masked (or next) token at each position: (B, L, vocabulary.size)."""

    def answers(inputs: Inputs) -> dict[str, torch.Tensor]:
        model = getattr(source.module, encoder)
        hidden = encode(model, inputs)
        logits = getattr(source.module, head)(hidden.flatten(0, 1), model.embedding_weight)
        return {"logits": logits.unflatten(0, hidden.shape[:2])[..., : source.vocabulary.size]}

    return answers


def hidden_answers(source: Source) -> Callable[[Inputs], dict[str, torch.Tensor]]:
    """The encoder's output (B, L, D), where there is no head to compare."""
    return lambda inputs: {"last_hidden_state": encode(source.module.encoder, inputs)}


def encode(encoder: torch.nn.Module, inputs: Inputs) -> torch.Tensor:
    """(B, L) -> (B, L, D)"""
    return encoder(inputs["input_ids"], inputs["attention_mask"], None, inputs.get("token_type_ids"))


def _real(inputs: Inputs, answer: torch.Tensor) -> torch.Tensor:
    return answer[inputs["attention_mask"].bool()] if answer.shape[:2] == inputs["input_ids"].shape else answer


def formats() -> Iterator[Format]:
    """Every format of interchange/formats/, in the order of their names."""
    import importlib
    import pkgutil

    from mlm_lab.interchange import formats as package

    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        yield importlib.import_module(f"{package.__name__}.{module.name}").FORMAT
