"""The token store: a tokenised corpus as memory-mapped arrays with sentence, document and word borders.

    folder/
      manifest.json                what the arrays were made from, their sizes, the vocabulary
      tokenizer.json, special_tokens_map.json
      train/, validation/          tokens.npy  word_starts.npy  sentence_starts.npy  document_starts.npy

Opening maps the files and reads none of them, so a store of any size opens in milliseconds and its pages are shared by all worker
processes. `mlm_lab.data.store_build` writes stores; this file only reads them.

Shapes: T tokens, S sentences, N documents of one split.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mlm_lab.corruption.frequency import frequency_bins
from mlm_lab.errors import UserError
from mlm_lab.types import Vocabulary

SPLITS = ("train", "validation")
ARRAYS = ("tokens", "word_starts", "sentence_starts", "document_starts")
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
COUNTED_AT_A_TIME = 1 << 22
"""Tokens, so that memory does not depend on the corpus."""


@dataclass(frozen=True)
class FileRecord:
    """One file of a store, as its manifest lists it."""

    path: str
    """Relative to the store's folder; may not leave it."""
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a store was made from and what it holds. The last file of a store to be written: without it there is no store."""

    fingerprint: str
    """Digest of text, tokenizer and code version: the store's name."""
    text: str
    """Fingerprint of the corpus."""
    tokenizer: str
    """Fingerprint of the tokenizer."""
    code: int
    """Version of the code that splits, encodes and lays out."""
    counts: dict[str, dict[str, int]]
    """split -> documents, sentences, words, tokens, unknown (tokens that are UNK)."""
    files: tuple[FileRecord, ...]
    vocabulary: dict[str, Any]
    found: tuple[str, ...]
    """What the corpus said about itself after it was read (sources, skipped and empty documents, duplicates)."""

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Raises UserError where there is no manifest, or one that is not of this program."""
        path = folder / MANIFEST
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            content["files"] = tuple(FileRecord(**record) for record in content["files"])
            content["found"] = tuple(content["found"])
            manifest = cls(**content)
            vocabulary_from_dict(manifest.vocabulary)
            if any(not isinstance(count, int) for split in SPLITS for count in manifest.counts[split].values()):
                raise ValueError("counts are no whole numbers")
            return manifest
        except FileNotFoundError:
            raise UserError("there is no token store here", where=str(folder), fix="run the prepare stage: stages=[prepare]") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise damaged(folder, f"{MANIFEST} cannot be read ({error})") from None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)


def damaged(folder: Path, what: str) -> UserError:
    """The error for a store whose files are not what was written."""
    return UserError(
        "the token store is damaged", where=str(folder), given=what, fix=f"delete the folder {folder}; prepare builds it again"
    )


def vocabulary_to_dict(vocabulary: Vocabulary) -> dict[str, Any]:
    return {field.name: getattr(vocabulary, field.name) for field in fields(vocabulary)}


def vocabulary_from_dict(content: dict[str, Any]) -> Vocabulary:
    sequences = {name: tuple(content[name]) for name in ("special_ids", "sentinel_ids")}
    return Vocabulary(**{**content, **sequences})


class TokenStore:
    """One split of a tokenised corpus, read-only. Pickles as its path, so that worker processes map the files themselves.

    Attributes:
        path: the store's folder (None when made by `from_arrays`).
        split: "train" or "validation".
        fingerprint: digest of text, tokenizer and code version.
        vocabulary: of the tokenizer that made it.
        tokens: (T,) uint16 or uint32; all documents end to end, no special tokens.
        word_starts: (T,) bool; first sub-token of a word, by the tokenizer's word ids. The first token of a sentence always is one.
        sentence_starts: (S + 1,) int64 offsets into tokens. No sentence is empty.
        document_starts: (N + 1,) int64 offsets into sentences. No document is empty.
    """

    path: Path | None
    split: str
    fingerprint: str
    vocabulary: Vocabulary
    tokens: np.ndarray
    word_starts: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray

    @classmethod
    def open(cls, folder: Path, split: str) -> TokenStore:
        """Map the files of one split.

        Raises:
            UserError: there is no store, or a file is missing, has another size than was written or lies outside the folder.
        """
        folder = Path(folder)
        manifest = Manifest.read(folder)
        check_files(folder, manifest)
        store = cls.__new__(cls)
        store.path, store.split, store.fingerprint = folder, split, manifest.fingerprint
        store.vocabulary = vocabulary_from_dict(manifest.vocabulary)
        for name in ARRAYS:
            try:
                setattr(store, name, np.load(folder / split / f"{name}.npy", mmap_mode="r", allow_pickle=False))
            except (OSError, ValueError) as error:
                raise damaged(folder, f"{split}/{name}.npy: {error}") from None
        if problem := store._border_problem():
            raise damaged(folder, f"{split}: {problem}")
        return store

    @classmethod
    def from_arrays(
        cls,
        tokens: np.ndarray,
        word_starts: np.ndarray,
        sentence_starts: np.ndarray,
        document_starts: np.ndarray,
        vocabulary: Vocabulary,
        split: str = "train",
    ) -> TokenStore:
        """A store in memory, from arrays as the attributes describe them (any integer types)."""
        store = cls.__new__(cls)
        store.path, store.split, store.vocabulary = None, split, vocabulary
        store.tokens = np.asarray(tokens, dtype=token_dtype(vocabulary))
        store.word_starts = np.asarray(word_starts, dtype=bool)
        store.sentence_starts = np.asarray(sentence_starts, dtype=np.int64)
        store.document_starts = np.asarray(document_starts, dtype=np.int64)
        digest = hashlib.sha256(vocabulary.fingerprint.encode())
        for name in ARRAYS:
            digest.update(np.ascontiguousarray(getattr(store, name)).tobytes())
        store.fingerprint = digest.hexdigest()
        if problem := store._border_problem():
            raise ValueError(problem)
        return store

    def _border_problem(self) -> str | None:
        """What does not fit together, looking at sizes and ends only (nothing is read from the long arrays)."""
        if self.tokens.shape != self.word_starts.shape:
            return f"{len(self.tokens)} tokens but {len(self.word_starts)} word marks"
        for name, starts, end in (
            ("sentence_starts", self.sentence_starts, len(self.tokens)),
            ("document_starts", self.document_starts, len(self.sentence_starts) - 1),
        ):
            if len(starts) == 0 or starts[0] != 0 or starts[-1] != end:
                return f"{name} must run from 0 to {end}"
        return None

    def __reduce__(self) -> tuple:
        if self.path is not None:
            return (TokenStore.open, (self.path, self.split))
        arrays = tuple(getattr(self, name) for name in ARRAYS)
        return (TokenStore.from_arrays, (*arrays, self.vocabulary, self.split))

    @property
    def num_sentences(self) -> int:
        return len(self.sentence_starts) - 1

    @property
    def num_documents(self) -> int:
        return len(self.document_starts) - 1

    @cached_property
    def document_offsets(self) -> np.ndarray:
        """(N + 1,) int64: where each document starts in tokens."""
        return np.asarray(self.sentence_starts)[np.asarray(self.document_starts)]

    @cached_property
    def train(self) -> TokenStore:
        """The split that statistics are taken from, also for held-out text: the store's train split (itself, where it is in memory)."""
        return self if self.path is None or self.split == "train" else TokenStore.open(self.path, "train")

    @cached_property
    def token_counts(self) -> np.ndarray:
        """(V,) int64: how often each id occurs in the training text, over the padded vocabulary."""
        tokens, rows = self.train.tokens, self.vocabulary.padded_size
        counts = np.zeros(rows, dtype=np.int64)
        for start in range(0, len(tokens), COUNTED_AT_A_TIME):  # bincount widens to int64
            counts += np.bincount(tokens[start : start + COUNTED_AT_A_TIME], minlength=rows)
        return counts

    @cached_property
    def frequency_bins(self) -> np.ndarray:
        """(V,) int64: how common each id is in the training text (`corruption.frequency`)."""
        return frequency_bins(self.token_counts)

    @cached_property
    def collocation_starts(self) -> np.ndarray:
        """(T,) bool: first token of each collocation and of each word outside of them (`data.collocations`)."""
        from mlm_lab.data.collocations import collocation_starts

        return collocation_starts(self)


def token_dtype(vocabulary: Vocabulary) -> type[np.unsignedinteger]:
    """uint16 where every id fits, else uint32."""
    return np.uint16 if vocabulary.size <= 2**16 else np.uint32


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compare what lies in the folder with what the manifest says was written.

    Raises:
        UserError: a file is missing, has another size or lies outside the folder, or the tokenizer beside the arrays is another one.
    """
    root = folder.resolve()
    for record in manifest.files:
        path = (folder / record.path).resolve()
        if not path.is_relative_to(root):
            raise damaged(folder, f"{MANIFEST} names a file outside the store: {record.path}")
        size = path.stat().st_size if path.is_file() else None
        if size != record.bytes:
            raise damaged(folder, f"{record.path}: {'missing' if size is None else f'{size} bytes'}, {record.bytes} bytes were written")
        if record.path == TOKENIZER and (found := hashlib.sha256(path.read_bytes()).hexdigest()) != record.sha256:
            raise UserError(
                "the token store's tokenizer is not the one that made its tokens",
                where=str(path),
                given=f"sha256 {found}",
                allowed=f"sha256 {record.sha256}",
                fix=f"delete the folder {folder}; prepare builds it again",
            )
