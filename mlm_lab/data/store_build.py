"""Build a token store: a stream of documents through a pool of processes into arrays that grow on disk.

    documents --chunks--> [split into sentences, encode] x processes --in order--> append to .npy files --> manifest

Chunks are appended in the order in which they were read, so the store does not depend on the number of processes; a bounded number of
them is under way, so memory does not depend on the size of the corpus.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from mlm_lab import console
from mlm_lab.data.build_once import build_once
from mlm_lab.data.documents import RawDocument, split_document
from mlm_lab.data.token_store import ARRAYS, MANIFEST, SPLITS, FileRecord, Manifest, token_dtype, vocabulary_to_dict
from mlm_lab.errors import UserError
from mlm_lab.processes import end_with
from mlm_lab.provenance import available_cpus
from mlm_lab.tokenizers.loading import LoadedTokenizer

CODE_VERSION = 1
"""To be raised when the same text and tokenizer come to give another store."""
CHUNK_CHARACTERS = 250_000
"""Work for about a second of a process; a longer document is a chunk of its own."""
CHUNKS_AHEAD = 2
"""For each process: chunks that wait or are not yet written."""


def store_fingerprint(text: str, tokenizer: str) -> str:
    """Name of the store of a corpus (its fingerprint) under a tokenizer (its fingerprint)."""
    return hashlib.sha256(json.dumps([text, tokenizer, CODE_VERSION]).encode()).hexdigest()


def build_store(
    folder: Path,
    documents: Callable[[], Iterable[RawDocument]],
    tokenizer: LoadedTokenizer,
    text: str,
    describe: Callable[[], list[str]] = list,
    characters: int | None = None,
    processes: int | None = None,
) -> Manifest:
    """Build the store in `folder` unless it is there; return its manifest.

    Args:
        documents: starts the stream; not called where the store is there.
        text: fingerprint of the corpus.
        describe: lines about the corpus, asked for after the stream has ended.
        characters: in the whole corpus, for the time left, where it is known.
        processes: at most as many; None: one for each CPU that this process may use.

    Raises:
        UserError: no text for training or for validation, a full disk, a folder that cannot be written to, or a store in `folder` that was
            made of another text or by another tokenizer, or is damaged.
    """
    with build_once(folder, "token store") as unfinished:
        if unfinished is not None:
            _write(unfinished, documents(), tokenizer, text, describe, characters, processes or available_cpus())
    return check_source(folder, text, tokenizer.fingerprint)


def check_source(folder: Path, text: str, tokenizer: str) -> Manifest:
    """The manifest of a store, after a look at what it was made from.

    Raises:
        UserError: the store is of another text, tokenizer or code version; both values are named.
    """
    manifest = Manifest.read(folder)
    for name, found, wanted in (
        ("text", manifest.text, text),
        ("tokenizer", manifest.tokenizer, tokenizer),
        ("version of the code", manifest.code, CODE_VERSION),
    ):
        if found != wanted:
            fix = f"delete the folder {folder} to have it built again, or give another cache_dir"
            raise UserError(
                f"the token store is of another {name}", where=str(folder), given=f"store {found}", allowed=f"run {wanted}", fix=fix
            )
    return manifest


@dataclass(frozen=True)
class EncodedChunk:
    """The documents of one split in a chunk. What came out without any token is left out."""

    tokens: np.ndarray
    """(T,)"""
    word_starts: np.ndarray
    """(T,) bool"""
    sentence_lengths: np.ndarray
    """(S,) tokens of each sentence."""
    document_lengths: np.ndarray
    """(N,) sentences of each document."""


def encode_chunk(documents: list[RawDocument], split: str, tokenizer: LoadedTokenizer) -> EncodedChunk:
    sentences = [split_document(document).sentences for document in documents if document.split == split]
    ids, word_starts, lengths = tokenizer.encode_batch(list(chain.from_iterable(sentences)))
    document_of = np.repeat(np.arange(len(sentences)), [len(document) for document in sentences])
    is_kept = lengths > 0
    sentence_counts = np.bincount(document_of[is_kept], minlength=len(sentences))
    dtype = token_dtype(tokenizer.vocabulary)
    return EncodedChunk(ids.astype(dtype), word_starts, lengths[is_kept], sentence_counts[sentence_counts > 0])


def _write(
    folder: Path,
    documents: Iterable[RawDocument],
    tokenizer: LoadedTokenizer,
    text: str,
    describe: Callable[[], list[str]],
    characters: int | None,
    processes: int,
) -> None:
    tokenizer.save(folder)
    splits = {split: _SplitFiles(folder / split, tokenizer) for split in SPLITS}
    done = 0
    with console.progress("Tokenising", characters, "characters") as bar:
        for size, encoded in _encode_all(_chunks(documents), tokenizer, processes):
            for split, part in encoded.items():
                splits[split].append(part)
            done += size
            bar.update(done, tokens=sum(files.counts["tokens"] for files in splits.values()))
    for files in splits.values():
        files.close()
    for split, purpose in zip(SPLITS, ("training", "validation"), strict=True):
        if splits[split].counts["tokens"] == 0:
            found = ", ".join(f"{splits[s].counts['documents']:,} {s} documents with text" for s in SPLITS)
            raise UserError(f"the corpus has no text for {purpose}", given=found, fix="give more text, or another data.validation_share")
    manifest = Manifest(
        fingerprint=store_fingerprint(text, tokenizer.fingerprint),
        text=text,
        tokenizer=tokenizer.fingerprint,
        code=CODE_VERSION,
        counts={split: files.counts for split, files in splits.items()},
        files=tuple(_record(folder, path) for path in sorted(folder.rglob("*")) if path.is_file()),
        vocabulary=vocabulary_to_dict(tokenizer.vocabulary),
        found=tuple(describe()),
    )
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


def _record(folder: Path, path: Path) -> FileRecord:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileRecord(path.relative_to(folder).as_posix(), path.stat().st_size, digest)


class _SplitFiles:
    """The four arrays of a split while they grow."""

    def __init__(self, folder: Path, tokenizer: LoadedTokenizer):
        folder.mkdir()
        self._unk_id = tokenizer.vocabulary.unk_id
        dtypes = dict(zip(ARRAYS, (token_dtype(tokenizer.vocabulary), np.bool_, np.int64, np.int64), strict=True))
        self._files = {name: _GrowingArray(folder / f"{name}.npy", np.dtype(dtype)) for name, dtype in dtypes.items()}
        for name in ("sentence_starts", "document_starts"):
            self._files[name].append(np.zeros(1, dtype=np.int64))
        self.counts = dict.fromkeys(("documents", "sentences", "words", "tokens", "unknown"), 0)

    def append(self, chunk: EncodedChunk) -> None:
        self._files["tokens"].append(chunk.tokens)
        self._files["word_starts"].append(chunk.word_starts)
        self._files["sentence_starts"].append(self.counts["tokens"] + np.cumsum(chunk.sentence_lengths))
        self._files["document_starts"].append(self.counts["sentences"] + np.cumsum(chunk.document_lengths))
        self.counts["documents"] += len(chunk.document_lengths)
        self.counts["sentences"] += len(chunk.sentence_lengths)
        self.counts["words"] += int(chunk.word_starts.sum())
        self.counts["tokens"] += len(chunk.tokens)
        self.counts["unknown"] += int((chunk.tokens == self._unk_id).sum())

    def close(self) -> None:
        for file in self._files.values():
            file.close()


class _GrowingArray:
    """A one-dimensional .npy file that is appended to. NumPy pads its header so that the final length fits into the first one's place."""

    def __init__(self, path: Path, dtype: np.dtype):
        self._file = path.open("wb")
        self._dtype, self._length = dtype, 0
        self._write_header()

    def _write_header(self) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._length,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, values: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self._length += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._write_header()
        self._file.close()


def _chunks(documents: Iterable[RawDocument]) -> Iterator[list[RawDocument]]:
    chunk: list[RawDocument] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += len(document.text)
        if size >= CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _encode_all(
    chunks: Iterator[list[RawDocument]], tokenizer: LoadedTokenizer, processes: int
) -> Iterator[tuple[int, dict[str, EncodedChunk]]]:
    """(characters, split -> encoded) of each chunk, in order."""
    first = list(islice(chunks, 2))
    chunks = chain(first, chunks)
    if processes == 1 or len(first) < 2:
        _start_worker(tokenizer, None)
        yield from map(_work, chunks)
        return
    # fork starts at once and shares the tokenizer; the child runs nothing but the splitter and the tokenizer
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker, initargs=(tokenizer, os.getpid()))
    try:
        waiting: deque[Future] = deque()
        for chunk in chunks:
            waiting.append(pool.submit(_work, chunk))
            if len(waiting) > CHUNKS_AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        fix = "run it again with more memory or fewer processes (taskset limits them)"
        raise UserError("a process that tokenises was ended from outside, most likely for want of memory", fix=fix) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(tokenizer: LoadedTokenizer, parent: int | None) -> None:
    """parent: process id of the main process when this is a worker of it."""
    global _worker_tokenizer
    _worker_tokenizer = tokenizer
    if parent is not None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the library's threads do not survive the fork: a worker would wait for them
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends its workers
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.Thread(target=end_with, args=(parent,), daemon=True).start()


_worker_tokenizer: LoadedTokenizer


def _work(chunk: list[RawDocument]) -> tuple[int, dict[str, EncodedChunk]]:
    encoded = {split: encode_chunk(chunk, split, _worker_tokenizer) for split in SPLITS}
    return sum(len(document.text) for document in chunk), encoded
