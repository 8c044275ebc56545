"""Reading labelled files: lines with their numbers, plain or gzipped, and errors that name file and line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from mlm_lab.errors import UserError


def find_file(folder: Path, stems: Iterable[str], suffixes: Iterable[str]) -> Path | None:
    """The first file STEM SUFFIX or STEM SUFFIX .gz that exists. A stem may be a glob ("test*")."""
    for stem in stems:
        for suffix in suffixes:
            for ending in (suffix, suffix + ".gz"):
                found = sorted(folder.glob(stem + ending))
                if found:
                    return found[0]
    return None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""(line number from 1, line without its ending), split at \n alone: U+2028 and U+0085 occur inside words.

    Raises:
        UserError: not UTF-8 (with the line), or a truncated gzip file.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError("the file is not UTF-8", where=f"{path}, line {number}, byte {error.start} of the line") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"the gzip file is damaged or cut short: {error}", where=str(path)) from error


def unknown_label(path: Path, line: int, given: str, allowed: Iterable[str]) -> UserError:
    """a label that the task does not know."""
    return UserError("a label that the task does not know", where=f"{path}, line {line}", given=repr(given), allowed=", ".join(allowed))
