"""Files of the user: every format reads the same, what is odd comes through, what is wrong is named."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import tracemalloc
from pathlib import Path

import pyarrow
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from mlm_lab.data import raw_text, text_files
from mlm_lab.data.corpora.text import Text
from mlm_lab.data.documents import RawDocument, split_document
from mlm_lab.errors import InvalidFields, UserError

FORMATS = ("jsonl", "csv", "parquet")
ODD = [
    "plain text",
    'two\nlines, a comma and "quotes"',
    "שלום עולם \u200fمرحبا\u200e",
    "👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 \U00020000",
    "tab\tand no-break\u00a0space",
    "1" * 1_000_000,
]


def corpus(files, **options) -> Text:
    defaults = {"validation_files": None, "validation_share": 0.3, "text_column": "text", "encoding": "utf-8"}
    names = str(files) if isinstance(files, Path | str) else tuple(map(str, files))
    return Text(files=names, **{**defaults, **options})


def write(path: Path, texts: list[str | None], column: str = "text") -> Path:
    """The texts in the format that the file's name says."""
    kind = text_files.kind_of(path)
    if kind == "jsonl":
        content = "".join(json.dumps({"id": 1, column: text}, ensure_ascii=False) + "\n" for text in texts).encode()
    elif kind == "csv":
        out = io.StringIO(newline="")
        csv.writer(out).writerows([["id", column], *([i, text] for i, text in enumerate(texts))])
        content = out.getvalue().encode()
    elif kind == "parquet":
        out = io.BytesIO()
        parquet.write_table(pyarrow.table({"id": list(range(len(texts))), column: pyarrow.array(texts, pyarrow.string())}), out)
        content = out.getvalue()
    else:
        content = "\n\n".join(texts).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def texts_of(found: Text, cache_dir: Path = Path()) -> list[str]:
    return [raw.text for raw in sorted(found.raw_documents(cache_dir), key=lambda raw: int(raw.source.rsplit(":")[-1]))]


def error_of(found: Text) -> str:
    with pytest.raises(UserError) as error:
        list(found.raw_documents(Path()))
    assert len(str(error.value).splitlines()) <= 6
    return str(error.value)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kind", FORMATS)
def test_odd_documents_come_through_unharmed(tmp_path: Path, kind: str, suffix: str) -> None:
    found = corpus(write(tmp_path / f"a.{kind}{suffix}", ODD))
    found.check()
    assert texts_of(found) == ODD
    document = split_document(RawDocument(ODD[-1], "a", "train"))
    assert document.sentences == (ODD[-1],)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_blank_lines_end_a_txt_document(tmp_path: Path, suffix: str) -> None:
    found = corpus(write(tmp_path / f"a.txt{suffix}", ["One.\nStill one.", "\n\nTwo.", "  \t\n \nThree", "x" * 1_000_000 + "\n"]))
    raws = list(found.raw_documents(Path()))
    assert sorted(raw.text for raw in raws) == sorted(["One.\nStill one.", "Two.", "Three", "x" * 1_000_000])
    assert {raw.text[:3]: raw.source for raw in raws} == {
        "One": "a.txt" + suffix + ":1",
        "Two": "a.txt" + suffix + ":6",
        "Thr": "a.txt" + suffix + ":10",
        "xxx": "a.txt" + suffix + ":12",
    }


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark(tmp_path: Path, newline: str, mark: str) -> None:
    for block in (1, 2, 3, 7, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_files, "BLOCK", block)
            path = tmp_path / "a.txt"
            path.write_bytes((mark + "Öne\nstill\n\nTwo 👩‍👧\n\n\n").replace("\n", newline).encode())
            assert texts_of(corpus(path)) == ["Öne\nstill", "Two 👩‍👧"]
            path = tmp_path / "a.jsonl"
            path.write_bytes((mark + '{"text": "Öne"}\n\n{"text": "a\\r\\nb"}').replace("\n", newline).encode())
            assert texts_of(corpus(path)) == ["Öne", "a\r\nb"]
            path = tmp_path / "a.csv"
            path.write_bytes((mark + 'text,n\nÖne,1\n"a\nb",2\n').replace("\n", newline).encode())
            assert texts_of(corpus(path)) == ["Öne", "a\nb"]


def test_empty_documents_are_skipped_and_reported(tmp_path: Path) -> None:
    for kind in FORMATS:
        nothing = None if kind != "csv" else ""
        found = corpus(write(tmp_path / f"a.{kind}", ["One.", "", " \n\t", nothing, "Two.", "\u2028"]))
        assert texts_of(found) == ["One.", "Two."]
        assert "4 empty documents" in "\n".join(found.describe())


def test_control_characters_and_lone_surrogates(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": "nul\\u0000 esc\\u001b[1m del\\u007f \\ud83d x"}\n{"text": "\\u0000\\u0001"}\n{"text": "whole \\ud83d\\ude00\\tx"}\n'
    )
    found = corpus(path)
    assert texts_of(found) == ["nul  esc [1m del  \ufffd x", "whole \U0001f600\tx"]
    report = "\n".join(found.describe())
    assert "1 empty" in report and "2 documents held control characters" in report and "1 documents held halves" in report


def test_the_same_text_falls_on_the_same_side_in_every_format(tmp_path: Path) -> None:
    texts = [f"Document number {number}." for number in range(300)]
    sides = []
    for kind in (*FORMATS, "txt", "txt.gz"):
        raws = corpus(write(tmp_path / f"a.{kind}", texts), validation_share=0.1).raw_documents(Path())
        sides.append({raw.text: raw.split for raw in raws})
    assert all(side == sides[0] for side in sides) and len(sides[0]) == 300
    assert 12 <= list(sides[0].values()).count("validation") <= 50


@settings(max_examples=60)
@given(st.lists(st.integers(0, 10**6), min_size=2, unique=True), st.floats(0.001, 0.999))
def test_something_is_held_out_of_two_documents_or_more(numbers: list[int], share: float) -> None:
    """And something is left to train on, nothing is lost, and the order of the input does not change the sides."""
    from collections import Counter

    def sides(order: list[int]) -> dict[str, str]:
        raws = [RawDocument(f"text {number}", "a", "train") for number in order]
        return {raw.text: raw.split for raw in raw_text.hold_out(iter(raws), share, Counter())}

    found = sides(numbers)
    assert found == sides(numbers[::-1]) and len(found) == len(numbers)
    assert set(found.values()) == {"train", "validation"}


def test_of_one_document_the_end_is_held_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", [" ".join(f"This is sentence {number}." for number in range(100))])
    found = corpus(path, validation_share=0.05)
    documents = list(map(split_document, found.raw_documents(Path())))
    assert [document.split for document in documents] == ["train", "validation"]
    assert documents[1].sentences == tuple(f"This is sentence {number}." for number in range(95, 100))
    assert "last 5 sentences" in "\n".join(found.describe())
    assert "one sentence" in error_of(corpus(write(tmp_path / "b.txt", ["Nothing to split"])))


def test_validation_files(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / f"{name}.txt", [f"{name} one", f"{name} two"])
    found = corpus(tmp_path, validation_files=str(tmp_path / "b.txt"))
    assert {raw.text: raw.split for raw in found.raw_documents(Path())} == {
        "a one": "train",
        "a two": "train",
        "c one": "train",
        "c two": "train",
        "b one": "validation",
        "b two": "validation",
    }
    with pytest.raises(UserError, match="holds out every file"):
        corpus(tmp_path / "b.txt", validation_files=(str(tmp_path / "*.txt"),)).check()


def test_a_file_a_list_a_folder_and_a_glob(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    for name in ("b.txt", "a.jsonl.gz", "deep/c.csv", "deep/er/d.parquet", "odd [1].txt"):
        write(tmp_path / name, [f"{name} one", f"{name} two"])
    (tmp_path / "README.md").write_text("not a document")
    monkeypatch.chdir(tmp_path)

    def files(pattern) -> list[str]:
        return [path.name for path in corpus(pattern)._training_paths()]

    assert files("b.txt") == ["b.txt"]
    assert files(["b.txt", "a.jsonl.gz", "./b.txt"]) == ["b.txt", "a.jsonl.gz"]
    assert files(".") == ["a.jsonl.gz", "b.txt", "c.csv", "d.parquet", "odd [1].txt"]
    assert files("**/*.[ct]*") == ["b.txt", "c.csv", "odd [1].txt"]
    assert files("odd [1].txt") == ["odd [1].txt"]
    for pattern, text in (
        ("x.txt", "no such file"),
        ("nothing*", "no such file"),
        ("README.md", "unknown file format"),
        ("*.md", "known format"),
    ):
        with pytest.raises(UserError, match=text):
            corpus(pattern).check()
    with pytest.raises(UserError, match="needs files"):
        Text(files=None, validation_files=None, validation_share=0.1, text_column="text", encoding="utf-8").check()


@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("block", [5, 64, 1 << 20])
def test_another_encoding_is_named_with_file_line_and_byte(tmp_path, monkeypatch, kind, suffix, newline, block) -> None:
    monkeypatch.setattr(text_files, "BLOCK", block)
    good = {"txt": "wört\n", "jsonl": '{"text": "wört"}\n', "csv": "wört\n"}[kind]
    content = b"\xef\xbb\xbf" + ((("text\n" if kind == "csv" else "") + good * 7).encode()).replace(b"\n", newline)
    bad = {"txt": b"ab\xe4c\n", "jsonl": b'{"text": "ab\xe4c"}\n', "csv": b"ab\xe4c\n"}[kind]
    path = tmp_path / f"a.{kind}{suffix}"
    path.write_bytes((gzip.compress if suffix else bytes)(content + bad + good.encode()))
    message = error_of(corpus(path))
    line, byte = 8 + (kind == "csv"), len(content) + bad.index(0xE4)
    assert f"{path}, line {line}, byte {byte}" in message
    assert "not utf-8" in message and "e4 63" in message and "data.encoding" in message


def test_a_cut_off_character_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"abc\n\n\xe2\x82")
    assert f"{tmp_path / 'a.txt'}, line 3, byte 5" in error_of(corpus(tmp_path / "a.txt"))


def test_other_encodings(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-16", "utf-16-le", "cp1252"):
        (tmp_path / "a.txt").write_bytes("wört\n\nzwö".encode(encoding))
        assert texts_of(corpus(tmp_path / "a.txt", encoding=encoding)) == ["wört", "zwö"]
    (tmp_path / "a.csv").write_bytes("text\n中文\n再来\n".encode("gb18030"))
    assert texts_of(corpus(tmp_path / "a.csv", encoding="gb18030")) == ["中文", "再来"]
    with pytest.raises(InvalidFields, match="encoding"):
        corpus("a.txt", encoding="klingon")
    with pytest.raises(InvalidFields, match="encoding"):
        corpus("a.txt", encoding="base64")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_missing_column_names_those_found(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / f"a.{kind}", ["One.", "Two."], column="body")
    with pytest.raises(UserError) as error:
        corpus(path).check()
    assert "no column 'text'" in str(error.value) and "id, body" in str(error.value) and "data.text_column" in str(error.value)
    assert texts_of(corpus(path, text_column="body")) == ["One.", "Two."]


def test_a_column_that_holds_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n{"text": 3}\n')
    assert f"{tmp_path / 'a.jsonl'}:2" in error_of(corpus(tmp_path / "a.jsonl"))
    write(tmp_path / "a.parquet", ["One."])
    assert "holds no text" in error_of(corpus(tmp_path / "a.parquet", text_column="id"))


def test_broken_lines_are_named(tmp_path: Path) -> None:
    cases = {
        "a.jsonl": '{"text": "fine"}\n\n{"text": "cut',
        "b.jsonl": '{"text": "fine"}\n\n["text"]',
        "c.jsonl": '{"text": "a"}\n\n{"txt": 1}',
        "d.csv": 'text,n\nfine,1\n"a\nb",2,3\n',
        "e.csv": 'text,n\nfine,1\n"never closed,2\nx,3\n',
    }
    for name, content in cases.items():
        (tmp_path / name).write_text(content)
        assert f"{tmp_path / name}:3" in error_of(corpus(tmp_path / name)), name
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    assert f"{tmp_path / 'deep.jsonl'}:1" in error_of(corpus(tmp_path / "deep.jsonl"))


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.csv.gz", "a.parquet", "a.parquet.gz"])
def test_a_cut_off_file_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [f"Document number {number} of it." for number in range(5000)])
    whole = path.read_bytes()
    for length in (len(whole) - 3, len(whole) // 2, 40, 3):
        path.write_bytes(whole[:length])
        message = error_of(corpus(path))
        assert str(path) in message and ("not a whole gzip file" in message or "parquet" in message)
    path.write_bytes(b"something else")
    assert str(path) in error_of(corpus(path))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """Where the format has checksums: gzip always, parquet if its writer asked for them."""
    texts = [f"Document number {number} of it." for number in range(20_000)]
    packed, table = write(tmp_path / "a.txt.gz", texts), tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": texts}), table, write_page_checksum=True, use_dictionary=False)
    for path in (packed, table):
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 1
        path.write_bytes(content)
        assert str(path) in error_of(corpus(path))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.csv", "a.parquet"])
def test_an_empty_corpus_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [" ", "\n\t\n"])
    with pytest.raises(UserError, match="no text"):
        corpus(path).check()
    assert "no text" in error_of(corpus(path))
    if name == "a.txt":
        path.write_bytes(b"")
        with pytest.raises(UserError, match="no text"):
            corpus(path).check()


def test_check_looks_at_every_file(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", ["One."])
    write(tmp_path / "b.jsonl", ["Two."], column="body")
    with pytest.raises(UserError, match="no column"):
        corpus(tmp_path).check()


def test_the_fingerprint_follows_content_names_and_settings(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", ["One.", "Two."])
    prints = [corpus(path).fingerprint(), corpus(path, validation_share=0.2).fingerprint(), corpus(path, text_column="x").fingerprint()]
    (tmp_path / "elsewhere").mkdir()
    copy = write(tmp_path / "elsewhere/a.txt", ["One.", "Two."])
    assert corpus(copy).fingerprint() == prints[0] == corpus((copy, copy)).fingerprint()
    prints.append(corpus(write(tmp_path / "b.txt", ["One.", "Two."])).fingerprint())
    prints.append(corpus(write(path, ["One.", "Twa."])).fingerprint())
    assert len(set(prints)) == 5


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl.gz", "a.csv", "a.parquet"])
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, name: str) -> None:
    """24 MB of text in documents of 30 kB (in one document without blank lines for txt): a few blocks are held at a time."""
    texts = [f"Line {number} of the text. " * 1000 for number in range(1000)]
    path = write(tmp_path / name, texts)
    tracemalloc.start()
    size = sum(len(raw.text) for raw in corpus(path).raw_documents(Path()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 20_000_000
    assert peak < 12_000_000


def test_a_txt_file_without_blank_lines_is_cut_at_lines(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(text_files, "LONGEST_TEXT", 1000)
    (tmp_path / "a.txt").write_text("".join(f"This is line {number}.\n" for number in range(500)))
    found = corpus(tmp_path / "a.txt")
    texts = texts_of(found)
    assert "\n".join(texts).split("\n") == [f"This is line {number}." for number in range(500)]
    assert max(map(len, texts)) < 1100
    assert "pieces were cut" in "\n".join(found.describe())


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])).filter(str.strip), min_size=2, max_size=6),
    st.sampled_from(FORMATS),
    st.booleans(),
)
@example(texts=["0E", "0E"], kind="jsonl", packed=False)
def test_any_text_comes_through(tmp_path: Path, texts: list[str], kind: str, packed: bool) -> None:
    path = write(tmp_path / f"a.{kind}{'.gz' if packed else ''}", texts)
    assert texts_of(corpus(path)) == texts


def test_raw_documents_and_the_splitter_are_picklable(tmp_path: Path) -> None:
    raw = next(corpus(write(tmp_path / "a.txt", ["One. Two.", "Three."])).raw_documents(Path()))
    function, argument = pickle.loads(pickle.dumps((split_document, raw)))
    assert function(argument) == split_document(raw)


def test_the_shared_texts_are_read(shared_data: Path) -> None:
    """A novel's chapters, Wikipedia and speeches: the documents that their makers counted."""
    folder = shared_data / "text"
    found = corpus([folder / "en-wiki/train.txt.gz", folder / "en-novels/train.jsonl.gz", folder / "en-speech-news/train.parquet"])
    found.check()
    documents, characters = 0, 0
    for raw in found.raw_documents(Path()):
        documents += 1
        characters += len(raw.text)
    assert (documents, characters) == (5243, 55366304)
