"""A run's weights: drawn from seeds.init, written once at the end as safetensors, read back by evaluation. Imports no Lightning.

RUN_FOLDER/weights.safetensors   tied matrices once
RUN_FOLDER/weights/step-N.safetensors   those of earlier steps that checkpoint.keep_weights_at asks for
RUN_FOLDER/tokenizer.json        so that the folder alone is enough to use the encoder
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.atomic import replacing
from mlm_lab.errors import UserError
from mlm_lab.types import ObjectiveModule, Vocabulary

if TYPE_CHECKING:
    import torch

    from mlm_lab.interchange.folder import Taken
    from mlm_lab.run_config import RunConfig
    from mlm_lab.run_folder import RunFolder
    from mlm_lab.tokenizers.loading import LoadedTokenizer

WEIGHTS, EARLIER = "weights.safetensors", "weights"


def fresh_module(config: RunConfig, vocabulary: Vocabulary) -> ObjectiveModule:
    """The objective's module with the random weights that the run starts from: a function of seeds.init alone."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seeds.init)
        return config.objective.build(config.model, vocabulary)


def save_weights(module: torch.nn.Module, folder: Path, step: int | None = None) -> str:
    """Write weights.safetensors, or those of a step on the way, whole or not at all. Returns the file's SHA-256, which is that of the
    weights: no date or path is in it, and of tied matrices the first name alone (safetensors' own list of the others comes in an order
    that differs from process to process).

    Raises:
        UserError: the disk is full or not writable.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    file = _place(folder, step)
    try:
        with replacing(file, sync_folder=True, temporary=f"{file.name}.tmp") as beside:
            save_file(_each_once(module), str(beside))
            digest = file_sha256(beside)
    except (OSError, SafetensorError) as error:
        fix = "free some space and run the same command again: it goes on from the last checkpoint"
        raise UserError(f"the weights were not written: {error}", where=str(folder), fix=fix) from None
    return digest


def _each_once(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """name -> tensor of the module's state; of one that has several names the first in alphabetical order."""
    found: dict[tuple, str] = {}
    state = module.state_dict()
    for name in sorted(state):
        found.setdefault((state[name].data_ptr(), state[name].shape) if state[name].numel() else (name,), name)
    return {name: state[name].contiguous() for name in state if name in found.values()}


def are_whole(folder: RunFolder) -> bool:
    """Whether the run's weights are there, as its summary names them: pretraining is over."""
    expected, weights = folder.read_summary().get("weights_sha256"), folder.path / WEIGHTS
    return expected is not None and weights.exists() and file_sha256(weights) == expected


def load_module(folder: Path, config: RunConfig, vocabulary: Vocabulary, step: int | None = None) -> ObjectiveModule:
    """The module of a finished run, or as it was after this step, on the CPU, in evaluation mode.

    Raises:
        UserError: the folder has no weights, or weights of another model.
    """
    module = fresh_module(config, vocabulary)
    load_weights(module, folder, step)
    return module.eval()


def load_start(folder: Path, config: RunConfig, tokenizer: LoadedTokenizer) -> tuple[ObjectiveModule, Taken]:
    """A Hugging Face folder's weights in the config's module, on the CPU, in evaluation mode, and what they are.

    Raises UserError: the folder has no weights, or those of another encoder or of another vocabulary.
    """
    from mlm_lab.interchange.folder import HuggingFaceFolder

    tokenizer.check_pieces_of(folder)
    module = fresh_module(config, tokenizer.vocabulary)
    return module.eval(), HuggingFaceFolder(folder).load_into(module, tokenizer)


def kept_steps(folder: Path) -> list[int]:
    """The steps on the way whose weights the run has kept."""
    found = (re.fullmatch(r"step-(\d+)\.safetensors", path.name) for path in (folder / EARLIER).glob("step-*"))
    return sorted(int(match[1]) for match in found if match)


def weights_file(folder: Path, step: int | None = None) -> Path:
    """Raises UserError where the run has none (yet), or none of this step."""
    if not (folder / WEIGHTS).exists():
        fix = "finish its pretraining: the same command with stages=[pretrain]"
        raise UserError("this run has no weights yet", where=str(folder), fix=fix)
    if not _place(folder, step).exists():
        steps = ", ".join(map(str, kept_steps(folder))) or "none"
        fix = "checkpoint.keep_weights_at=[0.1,0.5] keeps them while a run is trained, at these shares of its steps"
        raise UserError("the run has not kept the weights of this step", where=str(folder), given=str(step), allowed=steps, fix=fix)
    return _place(folder, step)


def _place(folder: Path, step: int | None) -> Path:
    return folder / WEIGHTS if step is None else folder / EARLIER / f"step-{step:08d}.safetensors"


def load_weights(module: torch.nn.Module, folder: Path, step: int | None = None) -> None:
    """Copy a finished run's weights into a module of the same shapes. Raises UserError as `load_module`."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    path = weights_file(folder, step)
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
