"""Sets from the Hugging Face hub, through `datasets`: downloaded once or streamed. A local folder that `datasets` can load works too.

Reaching the hub is tried once, for some seconds, before `datasets` starts its own minutes of retries; without it, a set that was downloaded
before is read from the cache.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab.data import raw_text, sentences
from mlm_lab.data.documents import TRAIN, VALIDATION, RawDocument, code_digest
from mlm_lab.data.raw_text import LONGEST_TEXT, both_sides, clean, describe, hold_out
from mlm_lab.errors import UserError, require

if TYPE_CHECKING:
    from datasets import DatasetBuilder

REACH_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A set of the Hugging Face hub."""

    name: str | None
    """Name on the hub ("Salesforce/wikitext") or a local folder."""
    config: str | None
    """The set's configuration; null where it has one only."""
    revision: str | None
    """Branch, tag or commit; null: the newest."""
    split: str
    """The set's split to train on."""
    validation_split: str | None
    """The set's held-out split; null: documents of `split` are held out by a hash of their text."""
    validation_share: float
    """Share of the documents that is held out where there is no validation_split."""
    text_column: str
    """Column that holds the text."""
    heading: str | None
    """Regular expression: a row that it matches begins a document and the rows up to the next belong to it; null: a row is a document."""
    streaming: bool
    """Read over the network as the text is needed instead of downloading the set first."""

    def __post_init__(self) -> None:
        require(
            ("validation_share", self.validation_share, 0 < self.validation_share < 1, "between 0 and 1"),
            ("heading", self.heading, _is_pattern(self.heading), "null or a regular expression"),
        )

    def check(self) -> None:
        """Ask the hub (or the cache) for the set's description. Raises UserError: out of reach, no such set, config, split or column."""
        builder = self._builder()
        splits = builder.info.splits or builder.config.data_files or ()
        for split in self._splits():
            if splits and split not in splits:
                raise UserError(f"no split {split!r}", where=self._where(), given=f"splits {', '.join(map(str, splits))}")
        columns = builder.info.features or self._first_row(builder)
        if self.text_column not in columns:
            found = f"columns {', '.join(columns)}"
            raise UserError(f"no column {self.text_column!r}", where=self._where(), given=found, fix="data.text_column=NAME")

    def fingerprint(self) -> str:
        """Digest of the set's commit and files, the columns and splits, and the code that cuts documents and sentences."""
        builder = self._builder()
        files = {str(split): list(map(str, files.origin_metadata)) for split, files in (builder.config.data_files or {}).items()}
        code = code_digest(sys.modules[__name__], raw_text, sentences)
        settings = [self.name, self.config, self._splits(), self.validation_share, self.text_column, self.heading]
        return hashlib.sha256(json.dumps([code, builder.hash, files, settings]).encode()).hexdigest()[:15]

    def raw_documents(self, cache_dir: Path) -> Iterator[RawDocument]:
        """Stream the documents in the set's order. Raises UserError where the connection breaks or a side is empty."""
        found: Counter[str] = Counter()
        object.__setattr__(self, "_found", found)  # for describe; no config field
        documents = clean(self._records(self.split), TRAIN, found)
        if self.validation_split is None:
            documents = hold_out(documents, self.validation_share, found)
        else:
            documents = chain(documents, clean(self._records(self.validation_split), VALIDATION, found))
        yield from both_sides(documents, found, where=self._where())

    def describe(self) -> list[str]:
        return describe(getattr(self, "_found", Counter()), self._where())

    def _first_row(self, builder: DatasetBuilder) -> dict[str, object]:
        """For sets whose description does not list their columns."""
        try:
            return next(iter(builder.as_streaming_dataset(split=self.split)))
        except StopIteration:
            raise UserError(f"no text: the split {self.split!r} is empty", where=self._where()) from None
        except (OSError, ValueError) as error:
            raise self._broken(error) from None

    def _records(self, split: str) -> Iterator[tuple[str, str]]:
        """(text, source) of each document."""
        builder = self._builder()
        try:
            if self.streaming:
                rows = builder.as_streaming_dataset(split=split)
            else:
                builder.download_and_prepare()
                rows = builder.as_dataset(split=split)
            rows = rows.select_columns([self.text_column])
            yield from self._grouped((row[self.text_column] for row in rows), f"{self.name}/{split}")
        except (OSError, ValueError) as error:  # connections that break are OSErrors in `datasets`
            raise self._broken(error) from None

    def _grouped(self, texts: Iterable[str | None], source: str) -> Iterator[tuple[str, str]]:
        if self.heading is None:
            yield from ((text or "", f"{source}:{number}") for number, text in enumerate(texts, 1))
            return
        is_heading = re.compile(self.heading).match
        rows: list[str] = []
        size = start = 0
        for number, text in enumerate(texts, 1):
            text = (text or "").strip("\n")
            if rows and (is_heading(text) or size > LONGEST_TEXT):
                yield "\n".join(rows), f"{source}:{start}"
                rows, size = [], 0
            start = start if rows else number
            rows.append(text)
            size += len(text)
        if rows:
            yield "\n".join(rows), f"{source}:{start}"

    def _splits(self) -> list[str]:
        return [split for split in (self.split, self.validation_split) if split is not None]

    def _where(self) -> str:
        return f"{self.name}/{self.config}" if self.config else str(self.name)

    def _broken(self, error: Exception) -> UserError:
        return UserError(f"reading the set failed: {_first_line(error)}", where=self._where(), fix="the same command again")

    def _builder(self) -> DatasetBuilder:
        """The set's description. Raises UserError: out of reach and not in the cache, or not a set that `datasets` loads."""
        if not self.name:
            raise UserError("data=hub needs a name", fix="data.name=Salesforce/wikitext data.config=wikitext-103-raw-v1")
        is_reached = Path(self.name).is_dir() or _is_hub_reached()
        import datasets

        if not sys.stderr.isatty():
            datasets.disable_progress_bars()
        if not is_reached:  # so that `datasets` looks into its cache at once
            datasets.config.HF_HUB_OFFLINE = True
        try:
            return datasets.load_dataset_builder(self.name, self.config, revision=self.revision)
        except ConnectionError:
            raise UserError(
                "the Hugging Face hub is out of reach and the set is not in its cache",
                where=self._where(),
                fix="data=pydocs (embedded, offline) or data=text data.files=FILE",
            ) from None
        except (OSError, ValueError, RuntimeError) as error:  # no such set or config, or one that needs a script
            raise UserError(f"not a set that can be loaded: {_first_line(error)}", where=self._where()) from None


def _is_hub_reached() -> bool:
    """Whether the hub answers at all, be it with an error."""
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return False
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=REACH_SECONDS).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _is_pattern(text: str | None) -> bool:
    try:
        re.compile(text or "")
    except re.error:
        return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
