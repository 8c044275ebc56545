"""A Hugging Face folder as a place to start from: what its encoder is, and its weights in a module of ours.

FOLDER/config.json          -> the model's fields       read when the config is composed: no torch, for the kinds that ours can be
FOLDER/model.safetensors    -> the module's parts       what the folder lacks (a head) keeps its fresh weights, which is said
FOLDER/tokenizer.json       -> rows of the embeddings   a token that the folder's vocabulary lacks starts as the mean of its pieces
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm_lab.errors import UserError
from mlm_lab.interchange import as_transformers
from mlm_lab.interchange.format import OVER_VOCABULARY, Format, embedding_name, formats
from mlm_lab.models.encoder_config import Encoder
from mlm_lab.models.transformers_encoder import TransformersEncoder

if TYPE_CHECKING:
    import torch

    from mlm_lab.interchange.format import State
    from mlm_lab.tokenizers.loading import LoadedTokenizer

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


def is_hugging_face(folder: Path) -> bool:
    """Whether the folder is a Hugging Face model, and no run of ours."""
    return (folder / CONFIG).is_file() and not (folder / "config.yaml").exists()


@dataclass(frozen=True)
class Taken:
    """What a module has from a folder."""

    loaded: tuple[str, ...]
    """Parts of the module with the folder's weights: encoder, head, ..."""
    fresh: tuple[str, ...]
    """Parts that the folder lacks: they keep the weights that they have."""
    unused: tuple[str, ...]
    """Parts that the folder has and the module has no place for."""
    new_tokens: int
    """Rows of the vocabulary that the folder lacks."""


class HuggingFaceFolder:
    """A folder with config.json and model.safetensors (one or several)."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def config(self) -> dict[str, Any]:
        """Raises UserError where config.json is not readable."""
        try:
            content = json.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError("config.json cannot be read", where=str(self.path / CONFIG), given=str(error)) from None
        if not isinstance(content, dict):
            raise UserError("config.json holds no mapping", where=str(self.path / CONFIG))
        return content

    @property
    def format(self) -> Format | None:
        """None where the kind of model is not one of ours."""
        kind = self.config.get("model_type")
        return next((each for each in formats() if each.readable and each.name == kind), None)

    def model(self) -> dict[str, Any]:
        """What a config says of the folder's encoder: ours, with the same function, or, of another kind, the one that Transformers builds.

        Raises UserError: a choice in its config that ours does not have.
        """
        if self.format is None:
            return {"_target_": _target(TransformersEncoder), "name_or_path": str(self.path), "config": {}}
        return {"_target_": _target(Encoder), **self.encoder_fields()}

    def encoder_fields(self) -> dict[str, Any]:
        """The fields of `Encoder`, where the format is one of ours.

        Raises UserError: a choice in its config that ours does not have.
        """
        config, kind = self.config, self.format
        try:
            refused, described = kind.refused(config), kind.describe(config)
        except (KeyError, TypeError) as error:
            raise UserError("config.json lacks what describes the model", where=str(self.path / CONFIG), given=str(error)) from None
        if refused:
            raise UserError(
                "the model has what ours cannot have",
                where=str(self.path / CONFIG),
                given=", ".join(refused),
                fix=f"model=transformers model.name_or_path={self.path} leaves the encoder to Transformers",
            )
        return described

    def weight_files(self) -> list[Path]:
        """The safetensors. Raises UserError where there are none (a pickle is a program, and is not read)."""
        if (self.path / INDEX).is_file():
            try:
                names = {str(name) for name in json.loads((self.path / INDEX).read_text(encoding="utf-8"))["weight_map"].values()}
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise UserError("the list of weight files cannot be read", where=str(self.path / INDEX), given=repr(error)[:200]) from None
            files = [self.path / Path(name).name for name in sorted(names)]  # a name alone: no path leads out of the folder
        else:
            files = [self.path / WEIGHTS]
        if missing := [file for file in files if not file.is_file()]:
            raise UserError(
                "the folder has no weights that can be read safely",
                where=str(missing[0]),
                fix=f'AutoModel.from_pretrained("{self.path}").save_pretrained("{self.path}", safe_serialization=True) writes them',
            )
        return files

    def fingerprint(self) -> str:
        """SHA-256 of config.json and weights: where they lie does not matter."""
        digest = hashlib.sha256((self.path / CONFIG).read_bytes())
        for path in self.weight_files():
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def tensors(self) -> State:
        """Their tensors in float32, under their own names."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        state: State = {}
        for path in self.weight_files():
            try:
                state |= load_file(path)
            except SafetensorError as error:
                raise UserError("the weights are damaged", where=str(path), given=str(error)) from None
        return {_modern(name): tensor.float() for name, tensor in state.items()}

    def state(self) -> State:
        """Their tensors, every encoder's under its format's prefix."""
        state, prefix = self.tensors(), self.format.prefix
        bare = not any(name.startswith(prefix) for name in state)  # a folder of an encoder alone
        return {f"{prefix if bare else ''}{name}": tensor for name, tensor in state.items()}

    def load_into(self, module: torch.nn.Module, tokenizer: LoadedTokenizer) -> Taken:
        """Copy the weights into a module whose encoder is `model`'s. tokenizer: the run's.

        Raises UserError: the encoder's shapes are others, or the folder has not all of it.
        """
        encoder = module.encoder
        ours = isinstance(encoder.config, Encoder)
        parts = self.format.read(self.state(), encoder.config) if ours else as_transformers.read(self.path, self.tensors(), encoder)
        embeddings = embedding_name(encoder)
        pieces = self._pieces(tokenizer, len(parts["encoder"][embeddings]))
        loaded, unused = [], []
        for name, state in parts.items():
            part = getattr(module, name, None)
            own = {} if part is None else part.state_dict()
            fitted = {
                key: _with_rows(tensor, own[key], pieces) if key in own and _is_over_vocabulary(name, key, embeddings) else tensor
                for key, tensor in state.items()
            }
            fits = set(fitted) == set(own) and all(fitted[key].shape == own[key].shape for key in own)
            if fits:
                part.load_state_dict(fitted)
                loaded.append(name)
            elif name == "encoder":
                raise self._other_shapes(fitted, own)
            else:
                unused.append(name)
        fresh = {name for name, part in module.named_children() if any(True for _ in part.parameters())} - set(loaded)
        return Taken(tuple(loaded), tuple(sorted(fresh)), tuple(unused), len(pieces))

    def _pieces(self, tokenizer: LoadedTokenizer, rows: int) -> dict[int, list[int]]:
        """Id of each token that their vocabulary lacks -> what their tokenizer makes of it; [] where it makes nothing."""
        from mlm_lab.tokenizers.loading import TOKENIZER, load

        new = range(rows, tokenizer.vocabulary.size)
        if not new:
            return {}
        theirs = load(self.path) if (self.path / TOKENIZER).is_file() else None
        return {token_id: [] if theirs is None else theirs.encode(tokenizer.token(token_id)) for token_id in new}

    def _other_shapes(self, theirs: State, ours: State) -> UserError:
        shared = [key for key in theirs if key in ours and theirs[key].shape != ours[key].shape]
        different = [f"{key} {tuple(theirs[key].shape)}, not {tuple(ours[key].shape)}" for key in shared]
        given = [*(f"no {key}" for key in sorted(set(ours) - set(theirs))), *(f"{key} too" for key in sorted(set(theirs) - set(ours)))]
        return UserError(
            "the folder's encoder is another than the config's",
            where=str(self.path),
            given="; ".join([*different, *given][:4]),
            fix="leave model= out: it is then taken from the folder",
        )


def _target(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _modern(name: str) -> str:
    """Norms of the oldest BERT folders have gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _is_over_vocabulary(part: str, key: str, embeddings: str) -> bool:
    """Whether a tensor of a module's part has a row for each token. embeddings: the encoder's, by name."""
    return (part, key) == ("encoder", embeddings) or f"{part}.{key}".endswith(OVER_VOCABULARY)


def _with_rows(theirs: torch.Tensor, ours: torch.Tensor, pieces: dict[int, list[int]]) -> torch.Tensor:
    """A tensor over the vocabulary with as many rows as ours has: theirs first; then new tokens, each the mean of its pieces (of all rows,
    where it has none); then the rows of ours that pad the vocabulary."""
    if theirs.shape[0] == ours.shape[0]:
        return theirs
    whole = ours.clone()
    common = min(len(theirs), len(ours))
    whole[:common] = theirs[:common]
    for token_id, made_of in pieces.items():
        whole[token_id] = theirs[made_of].mean(dim=0) if made_of else theirs.mean(dim=0)
    return whole
