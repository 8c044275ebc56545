"""What a corpus is: raw documents, quickly read by one process, that any process can split into sentences.

corpus.check()                    before anything is written: files, columns, a document at all
corpus.raw_documents(cache_dir)   streams RawDocument, memory does not grow, order fixed
split_document(raw)               RawDocument -> Document, pure and picklable: runs in the pool that tokenises
corpus.describe()                 after reading: what was found, skipped, dropped
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

from mlm_lab.data.sentences import split_paragraphs, split_sentences

TRAIN = "train"
VALIDATION = "validation"


@dataclass(frozen=True, slots=True)
class Document:
    """A document as sentences: none is empty, none holds a line break."""

    sentences: tuple[str, ...]
    source: str
    """Where it came from: a dotted module name for pydocs ("json.decoder"), else file and line or row ("name.txt:123")."""
    split: str
    """"train" or "validation"."""


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document before sentence splitting. It holds some text: corpora skip and count the empty ones."""

    text: str
    source: str
    split: str
    lines_are_sentences: bool = False
    """The text was split before (pydocs does so to drop duplicate sentences): a line is a sentence."""


def split_document(raw: RawDocument) -> Document:
    """Split into paragraphs and these into sentences (mlm_lab/data/sentences.py says by which rules)."""
    if raw.lines_are_sentences:
        sentences = tuple(raw.text.split("\n"))
    else:
        sentences = tuple(sentence for paragraph in split_paragraphs(raw.text) for sentence in split_sentences(paragraph))
    return Document(sentences, raw.source, raw.split)


def code_digest(*modules: ModuleType) -> str:
    """Digest of the source of modules, for fingerprints: text that other code would cut in other places is another text."""
    sources = (Path(module.__file__).read_bytes() for module in modules)
    return hashlib.sha256(b"\0".join(sources)).hexdigest()


class Corpus(Protocol):
    """A named source of text: a frozen config dataclass in mlm_lab/data/corpora/, chosen by conf/data/<name>.yaml."""

    def check(self) -> None:
        """Raise UserError for what can be seen cheaply: missing files, no text column, a broken archive, no text at all.

        What lies deeper (a bad byte at the end of a file) is raised as UserError by `raw_documents` when it gets there.
        """

    def fingerprint(self) -> str:
        """Digest of the content and of what turns it into documents: package versions for pydocs, the files' bytes for text."""

    def raw_documents(self, cache_dir: Path) -> Iterator[RawDocument]:
        """Stream all documents, both splits interleaved, in an order that depends on the fingerprint alone."""

    def describe(self) -> list[str]:
        """Lines for people, once `raw_documents` has been read to its end in this process: counts found, skipped, dropped."""
