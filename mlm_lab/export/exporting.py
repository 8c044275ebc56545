"""From a run folder to a Hugging Face folder that answers the same:

    run folder -> source (module, tokenizer) -> format -> models and tokenizer written -> loaded again and compared -> model card

Nothing is left behind where it fails: the folder is written beside its place and moved there when it has answered right.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mlm_lab.errors import UserError
from mlm_lab.export.card import model_card
from mlm_lab.export.comparison import compare, is_free, real_batches
from mlm_lab.export.tokenizer import save_tokenizer
from mlm_lab.interchange.format import Format, Part, Source, formats
from mlm_lab.run_config import to_dict
from mlm_lab.run_folder import RunFolder

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer


@dataclass(frozen=True)
class Exported:
    """What was written."""

    format: str
    architectures: dict[str, str]
    """Folder, relative to the output, -> Transformers' class."""
    largest_difference: float
    """Between an answer of ours and of the loaded model, at any position of the batches."""
    left_out: tuple[str, ...]
    """Parts of the objective's module that the format has no place for and that nothing needs."""


def export(
    run: Path,
    out: Path,
    *,
    format_name: str | None = None,
    encoder_only: bool = False,
    licence: str = "unknown",
    artifact: bool = False,
) -> Exported:
    """Write `run` as `out`, a folder that must not exist or is empty.

    format_name: the format to write; None: the one that can express the model. encoder_only: leave heads, generator and decoder behind.
    licence: an identifier of the Hugging Face hub, for the model card. artifact: whether the folder is logged as one of the run on W&B.

    Raises:
        UserError: no finished run; `out` holds something; no format can express the model, naming the keys; Transformers is missing; the
            loaded model does not answer as ours does.
    """
    _require_transformers()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("there is something in the output folder already", where=str(out), fix="another folder, or remove that one")
    from mlm_lab.config import load as load_config
    from mlm_lab.tokenizers.loading import load as load_tokenizer
    from mlm_lab.training.weights import load_module, weights_file

    if not (run / "config.yaml").is_file():
        raise UserError("this is not a run folder: it has no config.yaml", where=str(run))
    weights_file(run)
    config, tokenizer = load_config(run), load_tokenizer(run)
    if artifact and not hasattr(config.logger, "log_artifact"):
        raise UserError(
            "the run is not one of W&B's", where=str(run), given="--wandb", fix="leave it out; logger=wandb records a run there"
        )
    source = Source(load_module(run, config, tokenizer.vocabulary), tokenizer.vocabulary, config.max_length, encoder_only)
    chosen = choose(source, format_name)
    parts, summary = chosen.parts(source), RunFolder(run).read_summary()
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        for part in parts:
            _write(part, chosen, source, tokenizer, unfinished / part.folder)
        batches = real_batches(config, summary, tokenizer, chosen.takes_segments and source.encoder.type_vocab_size > 1)
        difference = max(compare(part, unfinished / part.folder, batch) for part in parts for batch in batches)
        left_out = tuple(sorted(set(source.module._modules) & {"boundary_head"} if not encoder_only else ()))
        exported = Exported(chosen.name, {part.folder or ".": part.architecture for part in parts}, difference, left_out)
        (unfinished / "README.md").write_text(model_card(config, summary, exported, tokenizer, licence), encoding="utf-8")
        _move(unfinished, out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    if artifact:
        config.logger.log_artifact(RunFolder(run), to_dict(config), out)
    return exported


def choose(source: Source, name: str | None = None) -> Format:
    """The format of this name, or the first that can express the model.

    Raises UserError: there is no such format, or it cannot express the model, naming the keys (of the nearest format where none was named).
    """
    known = {each.name: each for each in formats()}
    if name is not None and name not in known:
        raise UserError("there is no such format", given=name, allowed=", ".join(known))
    candidates = [known[name]] if name is not None else [each for each in known.values() if isinstance(source.encoder, each.of)]
    misfits = {each.name: each.misfits(source) for each in candidates}
    nearest = min(candidates, key=lambda each: len(misfits[each.name]))
    if not (lacking := misfits[nearest.name]):
        return nearest
    as_near = [each for each, found in misfits.items() if len(found) == len(lacking)]
    left_behind = any("objective's" in misfit for misfit in lacking)
    raise UserError(
        f"the format {name} cannot express this model" if name is not None else "no format of Transformers expresses this model",
        given=" | ".join("; ".join(misfits[each][:4]) for each in as_near[:3]),
        fix="--encoder-only leaves the objective's own parts behind" if left_behind else "pretrain with these keys changed",
    )


def _write(part: Part, chosen: Format, source: Source, tokenizer: LoadedTokenizer, folder: Path) -> None:
    """config.json, model.safetensors and the tokenizer's files, by Transformers' own means."""
    import transformers

    values = dict(part.config)
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    config.architectures = [part.architecture]
    with torch.random.fork_rng(devices=[]):
        model = getattr(transformers, part.architecture)(config)
    prefix = f"{model.base_model_prefix}."
    state = part.state
    if not any(name.startswith(prefix) for name in model.state_dict()):  # a bare encoder has no prefix of its own
        state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    model.tie_weights()
    lost = [name for name in missing if name not in (model.all_tied_weights_keys or {}) and not is_free(name)]
    if lost or unexpected:
        raise RuntimeError(f"{chosen.name}: not written {lost}, not known {unexpected}")
    kept = {name: tensor for name, tensor in model.state_dict().items() if name in state or not is_free(name)}
    model.eval().save_pretrained(folder, state_dict=kept)
    save_tokenizer(tokenizer, folder, source, chosen.takes_segments and source.encoder.type_vocab_size > 1)


def _move(unfinished: Path, out: Path) -> None:
    os.chmod(unfinished, 0o755)  # mkdtemp's 0700 would hide it from the rest of the team
    if out.exists():
        out.rmdir()
    unfinished.rename(out)


def _require_transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise UserError("an export is checked with Transformers, which is not installed", fix="pip install 'mlm_lab[hf]'") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers
