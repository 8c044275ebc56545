"""Encoded examples, kept under the cache: the same examples, tokenizer and length are encoded once, whichever run, cell or process asks.

CACHE_DIR/encoded/KEY.npz    rows end to end with their lengths; KEY is a digest of what they were made from
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.atomic import replacing

if TYPE_CHECKING:
    from mlm_lab.evaluation.encode import EncodedPart

CODE_VERSION = 1
"""Raised when the same examples come to be encoded otherwise."""
_kept_under: ContextVar[Path | None] = ContextVar("kept_under", default=None)


@contextmanager
def encoded_once(cache_dir: Path) -> Iterator[None]:
    """Inside the block encode.encode takes from the cache, and puts there, what it encodes."""
    token = _kept_under.set(cache_dir / "encoded")
    try:
        yield
    finally:
        _kept_under.reset(token)


def kept(encode: Callable[[], EncodedPart], examples: Sequence, *made_from: object) -> EncodedPart:
    """What `encode` gives, from the cache where it is there. made_from: what else determines it (tokenizer, labels, length)."""
    folder = _kept_under.get()
    if folder is None:
        return encode()
    from filelock import FileLock

    file = folder / f"{_key(examples, made_from)}.npz"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            if not file.exists():
                part = encode()
                _save(part, file)
                return part
    return _load(file)


def _key(examples: Sequence, made_from: tuple) -> str:
    from mlm_lab.evaluation.cells import digest_parts

    return blake2b(json.dumps([CODE_VERSION, digest_parts((), {"": examples}), *made_from]).encode(), digest_size=16).hexdigest()


def _save(part: EncodedPart, file: Path) -> None:
    arrays: dict[str, np.ndarray] = {}
    for name, value in asdict(part).items():
        if isinstance(value, list):
            arrays[name] = np.concatenate(value) if value else np.zeros(0, dtype=np.int64)
            arrays[f"{name}_lengths"] = np.array([len(row) for row in value], dtype=np.int64)
        elif value is not None:
            arrays[name] = np.asarray(value)
    with replacing(file) as beside, beside.open("wb") as opened:  # a file, since savez adds to a name
        np.savez(opened, **arrays)


def _load(file: Path) -> EncodedPart:
    from mlm_lab.evaluation.encode import EncodedPart

    with np.load(file, allow_pickle=False) as arrays:
        values = {name: arrays[name] for name in arrays.files}
    for name in [name for name in values if f"{name}_lengths" in values]:
        values[name] = np.split(values[name], np.cumsum(values.pop(f"{name}_lengths"))[:-1])
    return EncodedPart(**{"word_tokens": None, **values, "truncated": int(values["truncated"])})
