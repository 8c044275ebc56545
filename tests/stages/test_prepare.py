"""The prepare stage: from files to a tokenizer and a token store, once, and what is said about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlm_lab import compose
from mlm_lab.data.documents import split_document
from mlm_lab.data.token_store import TokenStore
from mlm_lab.errors import UserError
from mlm_lab.run_config import RunConfig
from mlm_lab.run_folder import RunFolder
from mlm_lab.stages import prepare as stage
from mlm_lab.stages.prepare import prepare
from mlm_lab.tokenizers.loading import load
from tests.conftest import REPOSITORY
from tests.tokenizers.trained import reference_texts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "reference.txt"
    path.write_text("\n\n".join(text.replace("\n\n", "\n") for text in reference_texts(80_000)), encoding="utf-8")
    return path


def configure(corpus: Path, cache: Path, *words: str) -> RunConfig:
    settings = ["tokenizer.vocab_size=900", "tokenizer.num_sentinels=10"] if not any("pretrained" in word for word in words) else []
    return compose(["data=text", f"data.files={corpus}", f"cache_dir={cache}", *settings, *words])


@pytest.mark.parametrize("tokenizer", ["wordpiece", "bpe", "unigram"])
def test_text_becomes_a_store_that_decodes_to_the_text(corpus: Path, tmp_path: Path, tokenizer: str):
    config = configure(corpus, tmp_path, f"tokenizer={tokenizer}", "tokenizer.lowercase=false")
    prepared = prepare(config)
    loaded = load(prepared.tokenizer_file)
    assert loaded.vocabulary == prepared.vocabulary
    assert prepared.vocabulary.size == 900
    for split in ("train", "validation"):
        store = TokenStore.open(prepared.store_folder, split)
        documents = [split_document(raw) for raw in config.data.raw_documents(tmp_path) if raw.split == split]
        assert store.fingerprint == prepared.fingerprint
        assert store.num_documents == len(documents)
        assert store.num_sentences == sum(len(document.sentences) for document in documents)
        assert not store.vocabulary.is_special[store.tokens][store.tokens != store.vocabulary.unk_id].any()
        first = loaded.decode(store.tokens[: store.sentence_starts[1]])
        if tokenizer == "bpe":
            assert first == documents[0].sentences[0]


def test_a_run_of_another_text_is_told(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """The same config names the same run folder, also when the file behind data.files has changed since."""
    config, folder = configure(corpus, tmp_path), RunFolder(tmp_path / "run")
    stage.run(config, folder)
    folder.update_summary(fingerprints={"store": prepare(config).fingerprint})
    stage.run(config, folder)
    assert "have changed" not in capsys.readouterr().err
    folder.update_summary(fingerprints={"store": "0" * 64})
    stage.run(config, folder)
    assert "have changed" in capsys.readouterr().err


def test_the_second_time_nothing_is_read_or_written(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    config = configure(corpus, tmp_path)
    first = prepare(config)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(type(config.data), "raw_documents", lambda *_: pytest.fail("the corpus was read again"))
    monkeypatch.setattr(type(config.tokenizer), "train", lambda *_: pytest.fail("the tokenizer was trained again"))
    capsys.readouterr()
    assert prepare(config) == first
    assert capsys.readouterr().out == ""
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_it_says_what_was_found(corpus: Path, tmp_path: Path, capsys):
    config = configure(corpus, tmp_path)
    stage.run(config, RunFolder(tmp_path / "run"))
    out, err = capsys.readouterr()
    prepared = prepare(config)
    stores = [TokenStore.open(prepared.store_folder, split) for split in ("train", "validation")]
    for text in (
        f"documents {sum(store.num_documents for store in stores):,}",
        f"sentences {sum(store.num_sentences for store in stores):,}",
        f"words {sum(int(store.word_starts.sum()) for store in stores):,}",
        f"tokens {sum(len(store.tokens) for store in stores):,}",
        "% UNK",
        str(prepared.store_folder),
    ):
        assert text in out
    assert err == ""
    stage.run(config, RunFolder(tmp_path / "run"))
    again = capsys.readouterr().out
    assert [line for line in prepared.lines if line not in again] == []


def test_many_unknown_tokens_are_warned_of(tmp_path: Path, capsys):
    corpus = tmp_path / "odd.txt"
    odd = "".join(chr(0x4E00 + number) for number in range(1500))
    corpus.write_text("\n\n".join(f"the word {odd[10 * n : 10 * n + 10]} is rare." for n in range(150)), encoding="utf-8")
    stage.run(configure(corpus, tmp_path / "cache", "tokenizer.vocab_size=300"), RunFolder(tmp_path / "run"))
    assert "UNK" in capsys.readouterr().err
    stage.run(configure(corpus, tmp_path / "cache", "tokenizer=bpe"), RunFolder(tmp_path / "run"))
    assert capsys.readouterr().err == ""


def test_another_text_or_setting_gets_another_store(corpus: Path, tmp_path: Path):
    longer = tmp_path / "reference.txt"
    longer.write_text(corpus.read_text(encoding="utf-8") + "\n\nOne more document.", encoding="utf-8")
    configs = [
        configure(corpus, tmp_path),
        configure(corpus, tmp_path, "tokenizer.lowercase=false"),
        configure(corpus, tmp_path, "tokenizer.vocab_size=899"),
        configure(corpus, tmp_path, "data.validation_share=0.2"),
        configure(longer, tmp_path),
    ]
    assert len({prepare(config).store_folder for config in configs}) == len(configs)
    assert len({prepare(config).fingerprint for config in configs}) == len(configs)


def test_the_store_of_another_tokenizer_in_its_place_is_refused(corpus: Path, tmp_path: Path):
    one, other = prepare(configure(corpus, tmp_path)), prepare(configure(corpus, tmp_path, "tokenizer=bpe"))
    place = one.store_folder
    place.rename(tmp_path / "aside")
    other.store_folder.rename(place)
    with pytest.raises(UserError, match="another tokenizer") as caught:
        prepare(configure(corpus, tmp_path))
    assert one.vocabulary.fingerprint in str(caught.value)
    assert other.vocabulary.fingerprint in str(caught.value)


def test_a_given_tokenizer_is_taken_as_it_is(corpus: Path, tmp_path: Path):
    trained = prepare(configure(corpus, tmp_path))
    given = tmp_path / "given"
    load(trained.tokenizer_file).save(given)
    prepared = prepare(configure(corpus, tmp_path / "elsewhere", "tokenizer=pretrained", f"tokenizer.path={given}"))
    assert prepared.vocabulary == trained.vocabulary
    assert prepared.fingerprint == trained.fingerprint
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        prepare(configure(corpus, tmp_path, "tokenizer=pretrained", f"tokenizer.path={tmp_path / 'nowhere'}"))


def test_a_corpus_that_breaks_off_leaves_no_store(tmp_path: Path, corpus: Path):
    broken = tmp_path / "broken.txt"
    broken.write_bytes(corpus.read_bytes() + b"\n\n\xff\xfe broken")
    with pytest.raises(UserError, match="utf-8"):
        prepare(configure(broken, tmp_path / "cache"))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_dir() and path.name not in ("tokenizers", "stores", "corpora")]


SCRIPT = """
import sys
from mlm_lab import compose
from mlm_lab.data import store_build
from mlm_lab.stages.prepare import prepare
store_build.CHUNK_CHARACTERS = 10_000  # so that the pool is used
print(prepare(compose(sys.argv[1:])).fingerprint)
print([name for name in ("torch", "lightning", "transformers") if name in sys.modules])
"""


def test_processes_that_start_at_once_agree_and_import_no_torch(corpus: Path, tmp_path: Path):
    words = ["data=text", f"data.files={corpus}", f"cache_dir={tmp_path}", "tokenizer.vocab_size=900"]
    command = [sys.executable, "-c", SCRIPT, *words]
    processes = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, "RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true"},
        )
        for threads in ("1", "2")
    ]
    results = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    assert len({out.splitlines()[-2] for out, _ in results}) == 1
    assert all(out.splitlines()[-1] == "[]" for out, _ in results)
    assert [error for _, error in results] == ["", ""]
    assert len([path for path in (tmp_path / "stores").iterdir() if path.is_dir()]) == 1


@pytest.mark.slow
def test_real_english_in_three_formats(shared_data: Path, tmp_path: Path, capsys):
    """txt.gz, jsonl.gz and parquet, 58 million characters: hardly any UNK, words near English."""
    folders = ",".join(str(shared_data / "text" / name) for name in ("en-wiki", "en-novels", "en-speech-news"))
    config = compose(["data=text", f"data.files=[{folders}]", f"cache_dir={tmp_path}"])
    prepared = prepare(config)
    store = TokenStore.open(prepared.store_folder, "train")
    assert prepared.unknown_share < 0.001
    assert prepared.vocabulary.size == config.tokenizer.vocab_size
    assert len(store.tokens) > 10_000_000
    assert 1.05 < len(store.tokens) / store.word_starts.sum() < 1.3
