"""Whether the written model answers as ours does, on real text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from mlm_lab.errors import UserError
from mlm_lab.interchange.format import Part

if TYPE_CHECKING:
    from mlm_lab.interchange.format import Inputs
    from mlm_lab.run_config import RunConfig
    from mlm_lab.tokenizers.loading import LoadedTokenizer

TOLERANCE = 1e-5
"""Largest difference allowed in float32: of numbers up to 1, and relative to the largest number of an answer beyond."""
BATCHES, ROWS, LONGEST = 3, 4, 128
MASKED = 7
"""Every so many tokens one is masked."""


def compare(part: Part, folder: Path, inputs: Inputs) -> float:
    """The largest difference between ours and the loaded model, at any position that is not padding, on the scale of `TOLERANCE`.

    Raises UserError where it is above the tolerance, or the folder does not load whole.
    """
    import transformers

    model, info = getattr(transformers, part.architecture).from_pretrained(folder, output_loading_info=True)
    missing = [name for name in info["missing_keys"] if not is_free(name)]
    if lost := [*missing, *info["unexpected_keys"], *info["mismatched_keys"]]:
        raise UserError("the written model does not load whole", where=str(folder), given=", ".join(map(str, lost)))
    given = dict(inputs) if model.config.is_encoder_decoder else {name: x for name, x in inputs.items() if name != "decoder_input_ids"}
    with torch.no_grad():
        theirs, ours = model.eval()(**given), part.answers(inputs)
    return max(_difference(field, part.compared_where(inputs, ours[field]), part.compared_where(inputs, theirs[field])) for field in ours)


def is_free(name: str) -> bool:
    """Whether a tensor of Transformers' may be missing: a pooler that no pretraining loss has trained."""
    return "pooler." in name


def _difference(field: str, ours: torch.Tensor, theirs: torch.Tensor) -> float:
    if ours.shape != theirs.shape:
        raise UserError("the written model answers in another shape", where=field, given=f"{tuple(theirs.shape)}, ours {tuple(ours.shape)}")
    difference = float((ours - theirs).abs().max() / ours.abs().max().clamp(min=1.0))
    if not difference <= TOLERANCE:
        raise UserError(
            "the written model does not answer as the run's does",
            where=field,
            given=f"a difference of {difference:.2g}",
            allowed=f"{TOLERANCE:g} in float32",
        )
    return difference


def real_batches(config: RunConfig, summary: Mapping, tokenizer: LoadedTokenizer, segments: bool) -> list[dict[str, torch.Tensor]]:
    """Three batches of text with masks, their rows of different lengths: of the run's held-out text where its token store is still there,
    else of the documentation of Python."""
    ids, vocabulary = _text(config, summary, tokenizer), tokenizer.vocabulary
    longest = min(LONGEST, config.max_length) - 2
    batches, start = [], 0
    for number in range(BATCHES):
        lengths = [max(4, longest - number - longest * row // (ROWS + 1)) for row in range(ROWS)]
        row_ids = np.full((ROWS, lengths[0] + 2), vocabulary.pad_id, dtype=np.int64)
        for row, length in enumerate(lengths):
            tokens = ids[start : start + length].copy()
            tokens[MASKED - 1 :: MASKED] = vocabulary.mask_id
            row_ids[row, : length + 2] = [vocabulary.cls_id, *tokens, vocabulary.sep_id]
            start += length
        places = np.arange(row_ids.shape[1])[None, :]
        real = places < np.array(lengths)[:, None] + 2
        batch = {"input_ids": row_ids, "attention_mask": real.astype(np.int64), "decoder_input_ids": row_ids[:, ::-1].copy()}
        if segments:
            batch["token_type_ids"] = (real & (places >= np.array(lengths)[:, None] // 2)).astype(np.int64)
        batches.append({name: torch.from_numpy(array) for name, array in batch.items()})
    return batches


def _text(config: RunConfig, summary: Mapping, tokenizer: LoadedTokenizer) -> np.ndarray:
    """Token ids end to end, as many as the batches need."""
    from mlm_lab.data.token_store import TokenStore
    from mlm_lab.stages.prepare import NAME_DIGITS

    needed = BATCHES * ROWS * LONGEST
    fingerprint = summary.get("fingerprints", {}).get("store")
    folder = config.cache_dir / "stores" / str(fingerprint)[:NAME_DIGITS]
    ids = np.array([], dtype=np.int64)
    if fingerprint and folder.is_dir():
        ids = np.asarray(TokenStore.open(folder, "validation").tokens[:needed], dtype=np.int64)
    if not len(ids):
        from pydoc_data.topics import topics

        ids = np.array(tokenizer.encode("\n".join(topics.values())[: 8 * needed]), dtype=np.int64)
    return np.resize(ids, needed)  # a short text is read more than once
