"""Text of your own: txt, jsonl, csv and parquet files, plain or gzipped.

files --records--> control characters out, empty ones skipped --> train and validation by a hash of the text
"""

from __future__ import annotations

import codecs
import glob
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from mlm_lab.data import raw_text, sentences, text_files
from mlm_lab.data.documents import TRAIN, VALIDATION, RawDocument, code_digest
from mlm_lab.data.raw_text import both_sides, clean, describe, hold_out
from mlm_lab.errors import UserError, require

FORMATS = "txt, jsonl, csv, parquet, and .gz of each"

Files = str | tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class Text:
    """Files of the user."""

    files: Files
    """A file, a list of files, a folder (all files of the known formats below it) or a glob: data.files='corpus/*.jsonl.gz'."""
    validation_files: Files
    """Held-out files, in the same forms; null: documents of `files` are held out by a hash of their text."""
    validation_share: float
    """Share of the documents that is held out where there are no validation_files: at least one document, of a single one its end."""
    text_column: str
    """Column or key that holds the text in jsonl, csv and parquet files."""
    encoding: str
    """Encoding of txt, jsonl and csv files, by Python's name for it."""

    def __post_init__(self) -> None:
        require(
            ("validation_share", self.validation_share, 0 < self.validation_share < 1, "between 0 and 1"),
            ("encoding", self.encoding, _is_text_encoding(self.encoding), "an encoding that Python knows, such as utf-8, latin-1, gb18030"),
        )

    def check(self) -> None:
        """Find the files and read the first document of each.

        Raises UserError: a missing file, an unknown format, no text column, other bytes than the encoding's or a cut-off file so far as
        the beginning (gzip) or the end (parquet) shows it, no text in any file.
        """
        for paths, key in ((self._training_paths(), "files"), (self._validation_paths(), "validation_files")):
            if paths and not sum(map(self._has_text, paths)):  # each file is looked at
                raise UserError(f"no text: the {len(paths):,} files of data.{key} hold nothing but white space", where=_names(paths))

    def fingerprint(self) -> str:
        """Digest of the files' names and bytes, the split, the column, the encoding, and the code that cuts documents and sentences."""
        files = [[_file_digest(path) for path in paths] for paths in (self._training_paths(), self._validation_paths())]
        code = code_digest(sys.modules[__name__], raw_text, text_files, sentences)
        content = json.dumps([code, files, self.validation_share, self.text_column, self.encoding])
        return hashlib.sha256(content.encode()).hexdigest()[:15]

    def raw_documents(self, cache_dir: Path) -> Iterator[RawDocument]:
        """Stream the documents in the files' order.

        Raises UserError for what a file holds anywhere (text_files.py), for no text at all and for one sentence that cannot be split.
        """
        found: Counter[str] = Counter()
        object.__setattr__(self, "_found", found)  # for describe; no config field
        training, validation = self._training_paths(), self._validation_paths()
        found["files"] = len(training) + len(validation)
        documents = clean(self._records(training, found), TRAIN, found)
        if validation:
            documents = chain(documents, clean(self._records(validation, found), VALIDATION, found))
        else:
            documents = hold_out(documents, self.validation_share, found)
        yield from both_sides(documents, found, where=_names(training + validation))

    def describe(self) -> list[str]:
        found: Counter[str] = getattr(self, "_found", Counter())
        return describe(found, f"{found['files']:,} files")

    def _training_paths(self) -> list[Path]:
        if not self.files:
            raise UserError("data=text needs files", allowed="a file, a list, a folder or a glob", fix="data.files=corpus.txt")
        held_out = set(self._validation_paths())
        paths = [path for path in _resolve(self.files, "files") if path not in held_out]
        if not paths:
            raise UserError("data.validation_files holds out every file of data.files", where=_names(sorted(held_out)))
        return paths

    def _validation_paths(self) -> list[Path]:
        return _resolve(self.validation_files, "validation_files") if self.validation_files else []

    def _has_text(self, path: Path) -> bool:
        return any(record.text and not record.text.isspace() for record in text_files.read_records(path, self.text_column, self.encoding))

    def _records(self, paths: list[Path], found: Counter[str]) -> Iterator[tuple[str, str]]:
        for path in paths:
            for record in text_files.read_records(path, self.text_column, self.encoding):
                found["cut"] += record.is_piece
                yield record.text, f"{path.name}:{record.number}"


def _resolve(files: str | tuple[str, ...], key: str) -> list[Path]:
    """The files meant, each once: in the order given, sorted by path inside a folder or a glob."""
    found: dict[Path, None] = {}
    for text in (files,) if isinstance(files, str) else files:
        path = Path(text).expanduser()
        if path.is_file():
            if text_files.kind_of(path) is None:
                raise UserError("unknown file format", where=str(path), allowed=FORMATS)
            matches = [path]
        else:
            pattern = f"{glob.escape(str(path))}/**" if path.is_dir() else str(path)
            matches = sorted(match for match in map(Path, glob.glob(pattern, recursive=True)) if match.is_file())
            if not matches:
                raise UserError("no such file", where=f"data.{key}", given=text, allowed="a file, a list, a folder or a glob")
            matches = [match for match in matches if text_files.kind_of(match)]
            if not matches:
                raise UserError("no file of a known format", where=f"data.{key}", given=text, allowed=FORMATS)
        found.update(dict.fromkeys(match.resolve() for match in matches))
    return list(found)


def _file_digest(path: Path) -> tuple[str, int, str]:
    state = path.stat()
    return path.name, state.st_size, _content_digest(path, state.st_size, state.st_mtime_ns)


@cache  # a corpus may have thousands of files
def _content_digest(path: Path, size: int, mtime_ns: int) -> str:
    """SHA-256 of a file, computed once a process while size and time of change stay."""
    with open(path, "rb") as binary:
        return hashlib.file_digest(binary, "sha256").hexdigest()


def _is_text_encoding(name: str) -> bool:
    try:
        return codecs.lookup(name)._is_text_encoding
    except LookupError:
        return False


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths[:5]) + (", ..." if len(paths) > 5 else "")
