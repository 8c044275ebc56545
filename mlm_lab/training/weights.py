"""A run's weights: drawn from seeds.init, written once at the end as safetensors, read back by evaluation. Imports no Lightning.

RUN_FOLDER/weights.safetensors   tied matrices once
RUN_FOLDER/tokenizer.json        so that the folder alone is enough to use the encoder
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.errors import UserError
from mlm_lab.types import ObjectiveModule, Vocabulary

if TYPE_CHECKING:
    import torch

    from mlm_lab.run_config import RunConfig
    from mlm_lab.run_folder import RunFolder

WEIGHTS = "weights.safetensors"


def fresh_module(config: RunConfig, vocabulary: Vocabulary) -> ObjectiveModule:
    """The objective's module with the random weights that the run starts from: a function of seeds.init alone."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seeds.init)
        return config.objective.build(config.model, vocabulary)


def save_weights(module: torch.nn.Module, folder: Path) -> str:
    """Write weights.safetensors whole or not at all. Returns its SHA-256, which is that of the weights: no date or path is in it.

    Raises:
        UserError: the disk is full or not writable.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    temporary = folder / f"{WEIGHTS}.tmp"
    try:
        save_model(module, str(temporary))
        digest = file_sha256(temporary)
        temporary.replace(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        fix = "free some space and run the same command again: it goes on from the last checkpoint"
        raise UserError(f"the weights were not written: {error}", where=str(folder), fix=fix) from None
    finally:
        temporary.unlink(missing_ok=True)
    return digest


def are_whole(folder: RunFolder) -> bool:
    """Whether the run's weights are there, as its summary names them: pretraining is over."""
    expected, weights = folder.read_summary().get("weights_sha256"), folder.path / WEIGHTS
    return expected is not None and weights.exists() and file_sha256(weights) == expected


def load_module(folder: Path, config: RunConfig, vocabulary: Vocabulary) -> ObjectiveModule:
    """The module of a finished run, on the CPU, in evaluation mode.

    Raises:
        UserError: the folder has no weights, or weights of another model.
    """
    module = fresh_module(config, vocabulary)
    load_weights(module, folder)
    return module.eval()


def weights_file(folder: Path) -> Path:
    """Raises UserError where the run has none (yet)."""
    if not (folder / WEIGHTS).exists():
        fix = "finish its pretraining: the same command with stages=[pretrain]"
        raise UserError("this run has no weights yet", where=str(folder), fix=fix)
    return folder / WEIGHTS


def load_weights(module: torch.nn.Module, folder: Path) -> None:
    """Copy a finished run's weights into a module of the same shapes. Raises UserError as `load_module`."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    path = weights_file(folder)
    try:
        load_model(module, str(path))
    except SafetensorError as error:
        raise UserError(
            "the weights are damaged", where=str(path), given=str(error), fix="remove the file and run the same command again"
        ) from None
    except RuntimeError as error:
        reason = next((line.strip() for line in str(error).splitlines()[1:] if line.strip()), str(error))
        raise UserError(
            "the weights are of another model", where=str(path), given=reason, fix="use the model, objective and tokenizer of that run"
        ) from None


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
