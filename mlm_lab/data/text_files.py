"""Records of text from txt, jsonl, csv and parquet files, plain or gzipped, streamed in memory of a block or a batch of rows.

A record is one document as the file holds it. What is wrong with a file is a UserError that names the file and the line, row or byte.
(`datasets`, which reads the same formats, names no line, and unless it streams it writes everything as Arrow files first.)
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from mlm_lab.data.raw_text import LONGEST_TEXT
from mlm_lab.errors import UserError

BLOCK = 1 << 20
"""Bytes read at a time."""
PARQUET_ROWS = 64
"""Rows read at a time: documents may have a million characters each."""


class Record(NamedTuple):
    text: str
    number: int
    """Line where it starts (txt, jsonl, csv) or row (parquet), from 1."""
    is_piece: bool = False
    """Cut from a document that had grown beyond LONGEST_TEXT."""


def kind_of(path: Path) -> str | None:
    """ "txt", "jsonl", "csv" or "parquet" by the name, .gz aside; None for other files."""
    suffix = Path(path.name.removesuffix(".gz")).suffix
    return suffix[1:] if suffix[1:] in READERS else None


def read_records(path: Path, column: str, encoding: str) -> Iterator[Record]:
    """Stream the records of a file.

    column: the text's name in jsonl, csv and parquet files. encoding: of txt, jsonl and csv files; parquet is UTF-8 always.
    """
    with _broken_files_named(path):
        yield from READERS[kind_of(path)](path, column, encoding)


def _read_txt(path: Path, column: str, encoding: str) -> Iterator[Record]:
    """Documents between blank lines."""
    document: list[str] = []
    size = start = 0
    for number, line in enumerate(_lines(path, encoding), 1):
        if line and not line.isspace():
            start = start if document else number
            document.append(line)
            size += len(line)
        if document and (size > LONGEST_TEXT or not line or line.isspace()):
            yield Record("\n".join(document), start, size > LONGEST_TEXT)
            document, size = [], 0
    if document:
        yield Record("\n".join(document), start)


def _read_jsonl(path: Path, column: str, encoding: str) -> Iterator[Record]:
    """An object a line; blank lines are skipped."""
    for number, line in enumerate(_lines(path, encoding), 1):
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UserError(f"not a JSON object: {error}", where=f"{path}:{number}", given=_shown(line)) from None
        if not isinstance(row, dict):
            raise UserError("not a JSON object", where=f"{path}:{number}", given=_shown(line), allowed='{"text": "...", ...}')
        if column not in row:
            raise _no_column(f"{path}:{number}", column, list(row))
        yield Record(_text(row[column], f"{path}:{number}", column), number)


def _read_csv(path: Path, column: str, encoding: str) -> Iterator[Record]:
    """Comma-separated with a header line; quoted fields may hold line breaks."""
    csv.field_size_limit(2**31 - 1)  # documents may have a million characters; the module's limit is 131,072
    rows = csv.reader((line + "\n" for line in _lines(path, encoding)), strict=True)
    header = next(rows, None)
    if header is None:
        return
    if column not in header:
        raise _no_column(f"{path}:1", column, header)
    index, line = header.index(column), rows.line_num + 1
    try:
        for row in rows:
            if row:
                if len(row) != len(header):
                    raise UserError(
                        f"{len(row)} fields under a header of {len(header)}", where=f"{path}:{line}", given=_shown(",".join(row))
                    )
                yield Record(row[index], line)
            line = rows.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"not a CSV row: {error}", where=f"{path}:{line}", fix="quote fields that hold commas, quotes or line breaks"
        ) from None


def _read_parquet(path: Path, column: str, encoding: str) -> Iterator[Record]:
    """A column of strings, read by batches of rows."""
    import pyarrow
    from pyarrow import parquet

    with _seekable(path) as binary:
        try:
            table = parquet.ParquetFile(binary, page_checksum_verification=True)
            if column not in table.schema_arrow.names:
                raise _no_column(path, column, table.schema_arrow.names)
            number = 0
            for batch in table.iter_batches(PARQUET_ROWS, columns=[column]):
                for value in batch.column(0):
                    number += 1
                    try:
                        text = value.as_py()
                    except UnicodeDecodeError as error:
                        raise UserError(f"not UTF-8: byte {error.start} of the text", where=f"{path}, row {number}") from None
                    yield Record(_text(text, f"{path}, row {number}", column), number)
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(f"not a readable parquet file, or one that was cut off: {_shown(str(error))}", where=str(path)) from None


READERS: dict[str, Callable[[Path, str, str], Iterator[Record]]] = {
    "txt": _read_txt,
    "jsonl": _read_jsonl,
    "csv": _read_csv,
    "parquet": _read_parquet,
}


def _lines(path: Path, encoding: str) -> Iterator[str]:
    """Lines without their ends (LF, CRLF or CR), a byte order mark taken off.

    Raises UserError with the line and the byte's offset in the (unpacked) file where the bytes are not in the encoding.
    """
    codec = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(codec)(), translate=True)
    number = offset = 0
    pieces: list[str] = []
    with _opened(path) as binary:
        while True:
            block = binary.read(BLOCK)
            offset += len(block)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                before = error.object[: error.start].decode(codec, "replace").replace("\r\n", "\n").replace("\r", "\n")
                raise UserError(
                    f"not {encoding}: {error.reason}",
                    where=f"{path}, line {number + 1 + before.count(chr(10))}, byte {offset - len(error.object) + error.start}",
                    given=" ".join(f"{byte:02x}" for byte in error.object[error.start : error.start + 4]),
                    fix="data.encoding=NAME (latin-1, cp1252, utf-16, gb18030, ...) if the file is in another encoding",
                ) from None
            first, *rest = text.split("\n")
            pieces.append(first)
            if rest:
                yield "".join(pieces)
                yield from rest[:-1]
                number += len(rest)
                pieces = [rest[-1]]
            if not block:
                break
    if last := "".join(pieces):
        yield last


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with open(path, "rb") as plain:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=plain) as unpacked:
                yield unpacked
        else:
            yield plain


@contextmanager
def _seekable(path: Path) -> Iterator[BinaryIO]:
    """Parquet is read from its end, so a gzipped one is unpacked to a temporary file first."""
    with _opened(path) as binary:
        if path.suffix != ".gz":
            yield binary
            return
        with tempfile.TemporaryFile() as unpacked:
            shutil.copyfileobj(binary, unpacked, BLOCK)
            unpacked.seek(0)
            yield unpacked


@contextmanager
def _broken_files_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"not a whole gzip file: {error}", where=str(path), fix="fetch or pack the file again") from None
    except PermissionError:
        raise UserError("no permission to read the file", where=str(path)) from None


def _text(value: object, where: str, column: str) -> str:
    """The field's text; null is an empty document."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"the column {column!r} holds no text", where=where, given=_shown(repr(value)), allowed="a string or null")
    return value


def _no_column(where: object, column: str, found: list[str]) -> UserError:
    shown = ", ".join(map(str, found[:12])) + (", ..." if len(found) > 12 else "")
    return UserError(f"no column {column!r}", where=str(where), given=f"columns {shown}", fix="data.text_column=NAME")


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:77]}..."
