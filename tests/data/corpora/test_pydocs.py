"""The embedded corpus: built once and whole, split by module, the same for everybody who has the same versions."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from mlm_lab.data.corpora import pydocs
from mlm_lab.data.corpora.pydocs import Entry, PyDocs, build, split_of
from mlm_lab.data.documents import split_document
from mlm_lab.data.python_sources import SourceFile
from mlm_lab.errors import InvalidFields

LONG = "This function opens the archive, reads the index from its end and returns the names of the members in the order found. "


@pytest.fixture
def modules(tmp_path: Path, monkeypatch) -> list[SourceFile]:
    """Forty modules of a made-up package; it stands for what is installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    files = []
    for number in range(40):
        path = folder / f"m{number:02}.py"
        path.write_text(
            f'"""Module number {number} of the package."""\n\ndef f(path, mode):\n    """Shared first sentence. '
            f'Its own sentence has word{number} in it."""\n\ndef g():\n    """{LONG}"""\n'
        )
        files.append(SourceFile(path, f"fake.m{number:02}", "fake"))
    broken = folder / "broken.py"
    broken.write_text("def f(:\n")
    files.append(SourceFile(broken, "fake.broken", "fake"))
    monkeypatch.setattr(pydocs, "_installed_files", lambda: (files, 1))
    return files


def test_duplicates_are_dropped_and_counted(modules, tmp_path: Path) -> None:
    corpus = PyDocs(validation_share=0.2)
    documents = list(map(split_document, corpus.raw_documents(tmp_path)))
    sentences = [sentence for document in documents for sentence in document.sentences]
    assert len(sentences) == len(set(sentences)) == 40 + 40 + 1 + 1
    assert {document.split for document in documents} == {"train", "validation"}
    report = "\n".join(corpus.describe())
    assert "81 documents, 82 sentences" in report and "39 near-duplicate documents, 39 duplicate sentences" in report
    assert "1 unreadable or generated modules, 1 packages without a list of files" in report


def test_entries_tell_what_the_tasks_need(modules, tmp_path: Path) -> None:
    entries = {(entry.module, entry.qualname): entry for entry in PyDocs(validation_share=0.2).read_entries(tmp_path)}
    assert entries["fake.m01", "f"] == Entry(
        module="fake.m01",
        package="fake",
        distribution="fake",
        qualname="f",
        kind="function",
        parameters=("path", "mode"),
        sentences=("Its own sentence has word1 in it.",),
        split=split_of("fake.m01", 0.2),
    )


def test_the_split_goes_by_module_and_twins_fall_alike() -> None:
    names = [f"package.module{number}" for number in range(4000)]
    held_out = {name for name in names if split_of(name, 0.05) == "validation"}
    assert 0.035 * len(names) < len(held_out) < 0.065 * len(names)
    assert held_out <= {name for name in names if split_of(name, 0.2) == "validation"}
    for number in range(200):
        assert split_of(f"pytorch_lightning.m{number}", 0.5) == split_of(f"lightning.pytorch.m{number}", 0.5)
    assert len({split_of(f"pytorch_lightning_x.m{n}", 0.5) == split_of(f"lightning.pytorch_x.m{n}", 0.5) for n in range(50)}) == 2


def test_one_or_two_processes_read_the_same(modules, tmp_path: Path, monkeypatch) -> None:
    texts = []
    for cpus in ({0}, {0, 1}):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cpus=cpus: cpus)
        folder = tmp_path / f"cpus{len(cpus)}"
        folder.mkdir()
        build(modules, 0, 0.2, folder)
        texts.append((folder / "entries.jsonl").read_bytes())
    assert texts[0] == texts[1] != b""


def test_a_build_that_is_broken_off_leaves_no_corpus(modules, tmp_path: Path, monkeypatch) -> None:
    real = pydocs._entry
    calls = []

    def fail_once(*arguments):
        calls.append(1)
        if len(calls) == 30:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(pydocs, "_entry", fail_once)
    with pytest.raises(KeyboardInterrupt):
        list(PyDocs(validation_share=0.2).raw_documents(tmp_path))
    assert len(list(PyDocs(validation_share=0.2).raw_documents(tmp_path))) == 81


def _read_in_child(cache_dir: Path, log: Path, files: list[SourceFile], barrier) -> None:
    real = pydocs.build

    def logged(*arguments):
        with open(log, "a") as out:
            out.write("built\n")
        real(*arguments)

    pydocs.build, pydocs._installed_files = logged, lambda: (files, 0)
    barrier.wait()
    assert len(PyDocs(validation_share=0.2).read_entries(cache_dir)) == 81


def test_two_processes_that_start_at_once_build_once(modules, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    arguments = (tmp_path / "cache", tmp_path / "log", modules, barrier)
    children = [context.Process(target=_read_in_child, args=arguments) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    assert (tmp_path / "log").read_text() == "built\n"


def test_the_digest_covers_versions_and_split() -> None:
    class Fake:
        def __init__(self, version: str):
            self.metadata, self.version = {"Name": "fake"}, version

    digests = {pydocs.digest_of([Fake(version)], share) for version in ("1.0", "1.1") for share in (0.05, 0.1)}
    assert len(digests) == 4
    assert pydocs.digest_of([Fake("1.0")], 0.05) in digests


def test_ranges() -> None:
    with pytest.raises(InvalidFields, match="between 0 and 1"):
        PyDocs(validation_share=1.0)


@pytest.mark.slow
def test_the_real_corpus(tmp_path: Path) -> None:
    """What the issue's prototype found is the least that must come out; read it with `-s`."""
    corpus = PyDocs(validation_share=0.05)
    corpus.check()
    entries = corpus.read_entries(tmp_path)
    print(*corpus.describe(), sep="\n")
    sentences = [sentence for entry in entries for sentence in entry.sentences]
    assert len(entries) > 40_000 and len(sentences) > 120_000 and sum(map(len, sentences)) > 9_000_000
    assert len(sentences) == len(set(sentences))
    held_out = {entry.module for entry in entries if entry.split == "validation"}
    assert held_out.isdisjoint({entry.module for entry in entries if entry.split == "train"})
    assert 0.02 * len(entries) < sum(entry.split == "validation" for entry in entries) < 0.1 * len(entries)
    assert not any(entry.package in ("mlm_lab", "pytest", "transformers") for entry in entries)
    assert sum("lightning" in entry.distribution for entry in entries) < 2000  # lightning and pytorch_lightning are the same code
    assert not any(mark in sentence for sentence in sentences for mark in (">>>", "`", "::", " = "))
