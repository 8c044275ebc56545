"""The token store: what is written is what was encoded, in any number of processes, once, whole or not at all; damage is refused."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from mlm_lab.data import build_once as build_once_module
from mlm_lab.data import store_build
from mlm_lab.data.documents import RawDocument, split_document
from mlm_lab.data.store_build import build_store, check_source, store_fingerprint
from mlm_lab.data.token_store import ARRAYS, MANIFEST, Manifest, TokenStore
from mlm_lab.errors import UserError
from mlm_lab.tokenizers.loading import LoadedTokenizer, load
from mlm_lab.types import Vocabulary
from tests.conftest import REPOSITORY


def make_tokenizer(extra: str = "") -> LoadedTokenizer:
    letters = "abcdefghijklmnopqrstuvwxyz" + extra
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters), ".", "?"]
    tokenizer = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    return LoadedTokenizer(tokenizer)


def make_documents(number: int = 60, length: int = 40) -> list[RawDocument]:
    random = np.random.default_rng(0)
    documents = []
    for index in range(number):
        words = ["".join(random.choice(list("abcdefg"), size=random.integers(1, 6))) for _ in range(length)]
        ends = np.where(random.random(length) < 0.2, ". X", " ")
        text = "".join(word + end for word, end in zip(words, ends, strict=True))
        documents.append(RawDocument(text, f"made:{index}", "validation" if index % 7 == 3 else "train"))
    return documents


def build(folder: Path, documents: list[RawDocument] | None = None, text: str = "text-1", **settings) -> Manifest:
    documents = make_documents() if documents is None else documents
    return build_store(folder, lambda: documents, settings.pop("tokenizer", None) or make_tokenizer(), text, **settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stores" / "one"


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_build, "CHUNK_CHARACTERS", 300)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_arrays_are_the_documents_one_by_one(folder: Path, split: str, small_chunks: None):
    manifest = build(folder, processes=2)
    store, tokenizer = TokenStore.open(folder, split), make_tokenizer()
    expected = [split_document(raw).sentences for raw in make_documents() if raw.split == split]
    assert store.num_documents == len(expected)
    sentence = 0
    for document, sentences in enumerate(expected):
        assert store.document_starts[document + 1] - store.document_starts[document] == len(sentences)
        for text in sentences:
            start, stop = store.sentence_starts[sentence], store.sentence_starts[sentence + 1]
            ids, word_starts, _ = tokenizer.encode_batch([text])
            assert store.tokens[start:stop].tolist() == ids.tolist()
            assert store.word_starts[start:stop].tolist() == word_starts.tolist()
            sentence += 1
    assert sentence == store.num_sentences
    assert store.document_offsets[-1] == len(store.tokens)
    assert store.tokens.dtype == np.uint16
    words = int(store.word_starts.sum())
    unknown = int((store.tokens == tokenizer.vocabulary.unk_id).sum())
    counts = {"documents": len(expected), "sentences": sentence, "words": words, "tokens": len(store.tokens), "unknown": unknown}
    assert manifest.counts[split] == counts


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_number_of_processes_and_the_chunks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    build(tmp_path / "alone", processes=1)
    monkeypatch.setattr(store_build, "CHUNK_CHARACTERS", 250)
    build(tmp_path / "three", processes=3)
    assert contents(tmp_path / "alone") == contents(tmp_path / "three")


def test_a_store_that_is_there_is_used_as_it_is(folder: Path):
    build(folder)
    before = contents(folder)

    def read() -> list[RawDocument]:
        raise AssertionError("the corpus was read again")

    manifest = build_store(folder, read, make_tokenizer(), "text-1")
    assert manifest.fingerprint == store_fingerprint("text-1", make_tokenizer().fingerprint)
    assert contents(folder) == before


def test_opening_maps_the_files_and_pickles_as_a_path(folder: Path):
    build(folder)
    store = TokenStore.open(folder, "train")
    assert isinstance(store.tokens, np.memmap)
    assert not store.tokens.flags.writeable
    pickled = pickle.dumps(store)
    assert len(pickled) < 1000
    assert np.array_equal(pickle.loads(pickled).tokens, store.tokens)
    assert store.vocabulary == make_tokenizer().vocabulary
    assert load(folder).fingerprint == store.vocabulary.fingerprint


def test_long_vocabularies_take_four_bytes():
    vocabulary = Vocabulary(2**16 + 1, 2**16 + 64, 0, 1, 2, 3, 4, (0, 1, 2, 3, 4), (), "x")
    store = TokenStore.from_arrays([2**16], [1], [0, 1], [0, 1], vocabulary)
    assert store.tokens.tolist() == [2**16]
    assert TokenStore.from_arrays([5], [1], [0, 1], [0, 1], make_tokenizer().vocabulary).tokens.dtype == np.uint16


def test_arrays_whose_borders_do_not_fit_are_refused():
    vocabulary = make_tokenizer().vocabulary
    for arrays in (([5], [1, 0], [0, 1], [0, 1]), ([5, 6], [1, 1], [0, 1], [0, 1]), ([5], [1], [0, 1], [0, 2]), ([5], [1], [1], [0])):
        with pytest.raises(ValueError):
            TokenStore.from_arrays(*arrays, vocabulary)
    store = TokenStore.from_arrays([5, 6], [1, 0], [0, 2], [0, 1], vocabulary, "validation")
    again = pickle.loads(pickle.dumps(store))
    assert (again.split, again.fingerprint, again.tokens.tolist()) == ("validation", store.fingerprint, [5, 6])


def test_sentences_and_documents_without_a_token_are_left_out(folder: Path):
    documents = [
        RawDocument("ab.\n\u200b\ncd.", "1", "train", lines_are_sentences=True),
        RawDocument("\u200b", "2", "train", lines_are_sentences=True),
        RawDocument("e", "3", "train", lines_are_sentences=True),
        RawDocument("f", "4", "validation", lines_are_sentences=True),
    ]
    build(folder, documents)
    store = TokenStore.open(folder, "train")
    assert store.sentence_starts.tolist() == [0, 3, 6, 7]
    assert store.document_starts.tolist() == [0, 2, 3]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("documents", "purpose"),
    [([], "training"), ([RawDocument("a", "1", "train")], "validation"), ([RawDocument("\u200b", "1", "train")], "training")],
)
def test_a_corpus_with_too_little_text_is_refused_and_nothing_stays(folder: Path, documents: list[RawDocument], purpose: str):
    with pytest.raises(UserError, match=f"no text for {purpose}"):
        build(folder, documents)
    assert not any(path.is_dir() for path in folder.parent.iterdir())


def test_another_text_or_tokenizer_is_refused_with_both_values(folder: Path):
    manifest = build(folder)
    with pytest.raises(UserError, match="another text") as caught:
        build(folder, text="text-2")
    assert "text-1" in str(caught.value)
    assert "text-2" in str(caught.value)
    other = make_tokenizer("é")
    with pytest.raises(UserError, match="another tokenizer") as caught:
        build(folder, tokenizer=other)
    assert manifest.tokenizer in str(caught.value)
    assert other.fingerprint in str(caught.value)
    assert check_source(folder, "text-1", manifest.tokenizer) == manifest


def test_a_tokenizer_put_into_the_folder_later_is_refused(folder: Path):
    build(folder)
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace('"##b":', '"##?":'))
    with pytest.raises(UserError, match="not the one that made its tokens") as caught:
        TokenStore.open(folder, "train")
    assert str(caught.value).count("sha256 ") == 2


@pytest.mark.parametrize("name", [*(f"train/{name}.npy" for name in ARRAYS), "validation/tokens.npy", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["cut", "longer", "missing"])
def test_a_damaged_file_is_refused_by_name(folder: Path, name: str, damage: str):
    build(folder)
    path = folder / name
    if damage == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(content[:-2] if damage == "cut" else content + b"  ")
    with pytest.raises(UserError, match="damaged") as caught:
        TokenStore.open(folder, "train")
    assert name in str(caught.value)
    assert "bytes were written" in str(caught.value)


def test_a_header_that_was_overwritten_is_refused(folder: Path):
    build(folder)
    path = folder / "train/tokens.npy"
    content = path.read_bytes()
    path.write_bytes(b"\0" * 64 + content[64:])
    with pytest.raises(UserError, match=r"train/tokens\.npy"):
        TokenStore.open(folder, "train")


@pytest.mark.parametrize("path", ["../outside.npy", "/etc/hostname"])
def test_a_manifest_may_not_name_files_outside_the_folder(folder: Path, path: str):
    build(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder.parent / "outside.npy").write_bytes(b"")
    manifest["files"].append({"path": path, "bytes": 0, "sha256": ""})
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="outside the store"):
        TokenStore.open(folder, "train")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": 3}', '{"files": [], "found": []}'])
def test_a_broken_manifest_is_refused(folder: Path, content: str):
    build(folder)
    (folder / MANIFEST).write_text(content)
    with pytest.raises(UserError, match="damaged"):
        TokenStore.open(folder, "train")


def test_no_store_is_refused_with_the_way_to_make_one(tmp_path: Path):
    with pytest.raises(UserError, match="prepare"):
        TokenStore.open(tmp_path, "train")


# --- once, whole or not at all ----------------------------------------------------------------------------------------


def _count_and_build(folder: Path, start: object, log: Path) -> None:
    def read() -> Iterator[RawDocument]:
        with log.open("a") as lines:
            lines.write("read\n")
        time.sleep(0.8)  # longer than the first try for the lock
        yield from make_documents()

    start.wait()
    build_store(folder, read, make_tokenizer(), "text-1", processes=1)
    assert TokenStore.open(folder, "train").num_documents > 0


def test_processes_that_start_at_once_build_one_store(folder: Path, tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    start, log = context.Barrier(3), tmp_path / "log"
    processes = [context.Process(target=_count_and_build, args=(folder, start, log)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert log.read_text() == "read\n"
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == ["one"]


class FullDisk:
    """A file that has room for some bytes only."""

    def __init__(self, file, room: int):
        self._file, self._room = file, room

    def write(self, data) -> int:
        self._room -= memoryview(data).nbytes
        if self._room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._file.write(data)

    def __getattr__(self, name: str):
        return getattr(self._file, name)


def test_a_full_disk_is_said_and_harms_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch):
    build(folder)
    before = contents(folder)
    make_array = store_build._GrowingArray.__init__

    def with_little_room(array, path: Path, dtype: np.dtype) -> None:
        make_array(array, path, dtype)
        array._file = FullDisk(array._file, 1000)

    monkeypatch.setattr(store_build._GrowingArray, "__init__", with_little_room)
    with pytest.raises(UserError, match="disk is full") as caught:
        build(folder.with_name("two"), text="text-2")
    assert "cache_dir" in str(caught.value)
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == ["one"]
    assert contents(folder) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_really_full(tmp_path: Path):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(UserError, match="disk is full"):
            build(tmp_path / "stores" / "one", make_documents(number=400, length=60))
        assert not any(path.is_dir() for path in (tmp_path / "stores").iterdir())
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        build(tmp_path / "file" / "one")


def test_an_error_in_the_corpus_stays_what_it_is(folder: Path):
    def read() -> Iterator[RawDocument]:
        yield from make_documents()
        raise PermissionError(errno.EACCES, "denied", "/somewhere/else.txt")

    with pytest.raises(PermissionError):
        build_store(folder, read, make_tokenizer(), "text-1")
    assert not folder.exists()


SLOW_BUILD = """
import sys, time
from pathlib import Path
from tests.data.test_token_store import make_documents, make_tokenizer
from mlm_lab.data import store_build

store_build.CHUNK_CHARACTERS = 300
def read():
    yield from make_documents()
    print("read", flush=True)
    time.sleep(60)
store_build.build_store(Path(sys.argv[1]), read, make_tokenizer(), "text-1", processes=2)
"""


@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGINT])
def test_what_a_stopped_process_left_is_in_nobodys_way(folder: Path, with_signal: int):
    """SIGKILL leaves an unfinished folder, and workers, which share the lock: they must go, or the next build waits for ever."""
    command = [sys.executable, "-c", SLOW_BUILD, str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True, **pipes) as process:
        while process.stdout.readline() != b"read\n":
            assert process.poll() is None
        workers = [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        assert len(workers) == 2
        if with_signal == signal.SIGINT:  # a terminal sends it to all of them
            os.killpg(process.pid, with_signal)
        else:
            process.send_signal(with_signal)
        _, errors = process.communicate(timeout=30)
    assert not folder.exists()
    if with_signal == signal.SIGINT:
        assert errors.count(b"Traceback") == 1, "the workers complain too"
        assert not folder.with_name("one.unfinished").exists()
    build(folder)
    assert sorted(path.name for path in folder.parent.iterdir() if path.is_dir()) == ["one"]
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "workers outlived their parent"
        time.sleep(0.05)


def test_a_worker_that_is_ended_from_outside_is_said(folder: Path, small_chunks: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_build, "_work", _die)
    with pytest.raises(UserError, match="memory"):
        build(folder, processes=2)
    assert not folder.exists()


def _die(chunk: list[RawDocument]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_memory_holds_a_bounded_number_of_chunks(folder: Path, small_chunks: None):
    """The stream is never read far ahead of what is written."""
    written = read = most_ahead = 0

    def stream() -> Iterator[RawDocument]:
        nonlocal read, most_ahead
        for document in make_documents(300):
            read += 1
            most_ahead = max(most_ahead, read - written)
            yield document

    chunks = store_build._chunks(stream())
    for _, encoded in store_build._encode_all(chunks, make_tokenizer(), 2):
        written += sum(len(part.document_lengths) for part in encoded.values())
    assert written == read == 300
    assert most_ahead < 30


def test_the_unfinished_folder_is_synced_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    events: list[str] = []
    monkeypatch.setattr(build_once_module, "sync", lambda path: events.append(path.name if path.exists() else "renamed too early"))
    with build_once_module.build_once(tmp_path / "one", "thing") as unfinished:
        (unfinished / "inner").mkdir()
        (unfinished / "inner" / "file").write_text("x")
    assert sorted(events[:-1]) == ["file", "inner", "one.unfinished"]
    assert events[-1] == tmp_path.name
