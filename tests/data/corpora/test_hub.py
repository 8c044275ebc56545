"""Sets through `datasets`. A local folder stands for the hub: the tests have no network."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from mlm_lab.data.corpora import hub
from mlm_lab.data.corpora.hub import Hub
from mlm_lab.data.documents import split_document
from mlm_lab.errors import InvalidFields, UserError

ROWS = ["", " = First = \n", "", " Text of it . More of it . \n", " = = Part = = \n", " The part . \n", " = Second = \n", " Its text . \n"]
HEADING = "^ ?= [^=].* = ?$"


def corpus(**options) -> Hub:
    defaults = {
        "config": None,
        "revision": None,
        "split": "train",
        "validation_split": None,
        "validation_share": 0.3,
        "text_column": "text",
    }
    return Hub(**{**defaults, "heading": None, "streaming": False, **options})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "set"
    path.mkdir()
    for split in ("train", "validation"):
        parquet.write_table(pyarrow.table({"text": [*ROWS, None], "n": [1] * 9}), path / f"{split}.parquet")
    return path


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_are_documents(folder: Path, streaming: bool) -> None:
    found = corpus(name=str(folder), streaming=streaming)
    found.check()
    raws = list(found.raw_documents(Path()))
    assert sorted(raw.text for raw in raws) == sorted(row for row in ROWS if row)
    assert {raw.split for raw in raws} == {"train", "validation"}
    assert "6 documents" in found.describe()[0] and "3 empty documents" in found.describe()[1]


@pytest.mark.parametrize("streaming", [False, True])
def test_headings_begin_documents(folder: Path, streaming: bool) -> None:
    """wikitext has a line a row and marks the title of an article as " = Title = "."""
    found = corpus(name=str(folder), heading=HEADING, validation_split="validation", streaming=streaming)
    documents = list(map(split_document, found.raw_documents(Path())))
    assert [document.split for document in documents] == ["train", "train", "validation", "validation"]
    assert [document.source.rsplit("/")[-1] for document in documents] == ["train:2", "train:7", "validation:2", "validation:7"]
    assert documents[0].sentences[:3] == ("= First =", "Text of it .", "More of it .")
    assert documents[1].sentences[-1].endswith("Its text .")


def test_what_the_set_lacks_is_named(folder: Path) -> None:
    cases = (
        ({"text_column": "body"}, "columns text, n"),
        ({"split": "test"}, "splits train, validation"),
        ({"validation_split": "dev"}, "splits train, validation"),
        ({"config": "big"}, "default"),
    )
    for options, text in cases:
        with pytest.raises(UserError, match=text):
            corpus(name=str(folder), **options).check()
    with pytest.raises(UserError, match="needs a name"):
        corpus(name=None).check()
    with pytest.raises(InvalidFields, match="heading"):
        corpus(name="a", heading="(")


def test_the_fingerprint_follows_files_and_settings(folder: Path) -> None:
    prints = {corpus(name=str(folder), **options).fingerprint() for options in ({}, {"heading": HEADING}, {"text_column": "n"})}
    assert len(prints) == 3 and corpus(name=str(folder)).fingerprint() in prints
    assert corpus(name=str(folder), streaming=True).fingerprint() in prints  # the same text, however it is fetched
    parquet.write_table(pyarrow.table({"text": ["other"], "n": [1]}), folder / "train.parquet")
    assert corpus(name=str(folder)).fingerprint() not in prints


@pytest.mark.parametrize("streaming", [False, True])
def test_without_the_hub_the_answer_is_quick_and_names_the_way_out(monkeypatch, tmp_path: Path, streaming: bool) -> None:
    """The address is one where nothing listens; `datasets` alone would retry for 23 s."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("a retry"))
    assert not hub._is_hub_reached()
    with pytest.raises(UserError) as error:
        corpus(name="Salesforce/wikitext", config="wikitext-103-raw-v1", streaming=streaming).check()
    assert "data=pydocs" in str(error.value) and "data=text" in str(error.value) and "out of reach" in str(error.value)
