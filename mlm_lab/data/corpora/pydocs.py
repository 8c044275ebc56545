"""The corpus that is always there: the language reference and the docstrings of Python and of the packages this project runs on.

    source files --ast--> docstrings --prose--> sentences --duplicates dropped--> entries.jsonl in the cache, built once

The text depends on the installed versions; the fingerprint covers them. A definition is a document. The split goes by module, so that a
downstream task whose examples come from validation modules never meets them in pretraining.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from mlm_lab.console import progress
from mlm_lab.data import docstrings, duplicates, python_sources, sentences
from mlm_lab.data.build_once import build_once
from mlm_lab.data.documents import TRAIN, VALIDATION, RawDocument, code_digest
from mlm_lab.data.duplicates import Duplicates
from mlm_lab.data.python_sources import Docstring, SourceFile
from mlm_lab.errors import UserError, require
from mlm_lab.provenance import available_cpus

TWINS = {"pytorch_lightning": "lightning.pytorch", "lightning_fabric": "lightning.fabric"}
"""The same code under two names: they fall on the same side of the split."""
FILES_PER_TASK = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """A documented definition, after duplicates were dropped."""

    module: str
    """Dotted name ("json.decoder"); a chapter of the language reference is a module of its own ("pydoc_data.topics.lambda")."""
    package: str
    """First part of the module's name."""
    distribution: str
    """What installed it: "python" for the standard library, else the distribution's name ("torch")."""
    qualname: str
    """Inside the module ("JSONDecoder.decode"); empty for modules and topics."""
    kind: str
    """"module", "class", "function" (methods too) or "topic"."""
    parameters: tuple[str, ...]
    """Names of a function's parameters, without self and cls."""
    sentences: tuple[str, ...]
    """Those of its sentences that occur nowhere before; at least one."""
    split: str
    """"train" or "validation", by the module's name."""


@dataclass(frozen=True, kw_only=True)
class PyDocs:
    """The documentation of Python and of the installed core requirements."""

    validation_share: float
    """Share of the modules that are held out for validation and for test examples of the pydocs tasks."""

    def __post_init__(self) -> None:
        require(("validation_share", self.validation_share, 0 < self.validation_share < 1, "between 0 and 1"))

    def check(self) -> None:
        """Raises UserError where Python was installed without its sources."""
        if not python_sources.has_stdlib():
            raise UserError("data=pydocs: the standard library's source files are not installed", fix="data=text data.files=FILE")

    def fingerprint(self) -> str:
        """Digest of the versions of Python and the packages, of the code that reads them, and of the split."""
        return _digest(self.validation_share)

    def raw_documents(self, cache_dir: Path) -> Iterator[RawDocument]:
        """An entry a document, split into sentences already. Builds the cache at the first call (15-45 s)."""
        for entry in _stored(self._folder(cache_dir)):
            yield RawDocument("\n".join(entry["sentences"]), entry["module"], entry["split"], lines_are_sentences=True)

    def read_entries(self, cache_dir: Path) -> list[Entry]:
        """All entries with what the downstream tasks need to know of them, in the corpus's order."""
        return [
            Entry(**{**entry, "parameters": tuple(entry["parameters"]), "sentences": tuple(entry["sentences"])})
            for entry in _stored(self._folder(cache_dir))
        ]

    def describe(self) -> list[str]:
        return list(getattr(self, "_found", ()))

    def _folder(self, cache_dir: Path) -> Path:
        """The folder of this digest, built if it is not there."""
        folder = cache_dir / "corpora" / f"pydocs-{self.fingerprint()}"
        with build_once(folder, "pydocs corpus") as unfinished:
            if unfinished is not None:
                build(*_installed_files(), self.validation_share, unfinished)
        object.__setattr__(self, "_found", json.loads((folder / "found.json").read_text(encoding="utf-8")))  # for describe; no config field
        return folder


def read_entries(cache_dir: Path, validation_share: float = 0.05) -> list[Entry]:
    """The entries of the corpus under its default split."""
    return PyDocs(validation_share=validation_share).read_entries(cache_dir)


def split_of(module: str, validation_share: float) -> str:
    """The side on which a module falls: by a hash of its name, twins alike, whatever else is installed."""
    for twin, original in TWINS.items():
        if module == twin or module.startswith(f"{twin}."):
            module = original + module[len(twin) :]
    code = int.from_bytes(hashlib.sha256(module.encode()).digest()[:8])
    return VALIDATION if code < validation_share * 2**64 else TRAIN


def build(files: list[SourceFile], without_files: int, validation_share: float, folder: Path) -> None:
    """Read the files and write entries.jsonl and found.json (lines for people) into the folder.

    without_files: distributions that have no list of their files, for the report.
    """
    seen, unreadable, kept = Duplicates(), 0, Counter()
    characters = sentences_kept = validation = 0
    with open(folder / "entries.jsonl", "w", encoding="utf-8") as out, progress("Reading documentation", len(files), "files") as bar:
        for found in _read_all(files):
            bar.advance()
            unreadable += found is None
            for docstring in found or ():
                entry = _entry(docstring, seen, validation_share)
                if entry is None:
                    continue
                out.write(json.dumps(asdict(entry), ensure_ascii=False) + "\n")
                kept[entry.distribution] += 1
                validation += entry.split == VALIDATION
                sentences_kept += len(entry.sentences)
                characters += sum(map(len, entry.sentences))
    top = ", ".join(f"{name} {count:,}" for name, count in kept.most_common(6))
    lines = [
        f"{kept.total():,} documents, {sentences_kept:,} sentences, {characters:,} characters; {validation:,} documents are held out",
        f"from {len(files):,} modules of Python {platform.python_version()} and {len(kept) - 1} packages; most documents: {top}",
        f"dropped: {seen.documents:,} near-duplicate documents, {seen.sentences:,} duplicate sentences",
    ]
    if unreadable or without_files:
        lines.append(f"skipped: {unreadable:,} unreadable or generated modules, {without_files:,} packages without a list of files")
    (folder / "found.json").write_text(json.dumps(lines), encoding="utf-8")


def _entry(docstring: Docstring, seen: Duplicates, validation_share: float) -> Entry | None:
    text = " ".join(docstring.sentences)
    if seen.is_document_seen(text) or not (fresh := seen.new_sentences(docstring.sentences)):
        return None
    return Entry(
        module=docstring.module,
        package=docstring.module.partition(".")[0],
        distribution=docstring.distribution,
        qualname=docstring.qualname,
        kind=docstring.kind,
        parameters=docstring.parameters,
        sentences=tuple(fresh),
        split=split_of(docstring.module, validation_share),
    )


def _read_all(files: list[SourceFile]) -> Iterator[list[Docstring] | None]:
    """What each file documents, in the files' order, by as many processes as there are CPUs for us (two are enough)."""
    if available_cpus() < 2 or len(files) < FILES_PER_TASK:
        yield from map(python_sources.read_docstrings, files)
        return
    with ProcessPoolExecutor(2, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.map(python_sources.read_docstrings, files, chunksize=FILES_PER_TASK)


def _stored(folder: Path) -> Iterator[dict]:
    with open(folder / "entries.jsonl", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _installed_files() -> tuple[list[SourceFile], int]:
    """All source files, the standard library first; and the number of distributions that do not say what they installed."""
    files, without_files = python_sources.stdlib_files(), 0
    for distribution in python_sources.core_distributions():
        installed = python_sources.distribution_files(distribution)
        files += installed or ()
        without_files += installed is None
    return files, without_files


@cache
def _digest(validation_share: float) -> str:
    """15 hex digits."""
    return digest_of(python_sources.core_distributions(), validation_share)


def digest_of(distributions: Iterable[importlib.metadata.Distribution], validation_share: float) -> str:
    """Digest of everything that the entries depend on."""
    code = code_digest(sys.modules[__name__], docstrings, duplicates, python_sources, sentences)
    versions = sorted((distribution.metadata["Name"], distribution.version) for distribution in distributions)
    content = json.dumps([code, versions, platform.python_version(), validation_share])
    return hashlib.sha256(content.encode()).hexdigest()[:15]
