"""Where words begin: by the tokenizer, by spaces, by Unicode's rules in any script, by jieba in Chinese."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from mlm_lab.config import compose
from mlm_lab.errors import UserError
from mlm_lab.run_config import settings_of, store_key
from mlm_lab.tokenizers.loading import LoadedTokenizer, load
from mlm_lab.tokenizers.words import first_tokens, settle
from tests.corruption.stores import many_documents

SCRIPTS = {
    "words and numbers": ("The cat can't pay 3.14 euros.", ["The", "cat", "can't", "pay", "3.14", "euros", "."]),
    "combining marks": ("cafe\u0301 nai\u0308ve a\u0301", ["cafe\u0301", "nai\u0308ve", "a\u0301"]),
    "Devanagari": ("हिन्दी में लिखा", ["हिन्दी", "में", "लिखा"]),
    "Arabic with marks": ("كَتَبَ الوَلَدُ الدَّرْسَ", ["كَتَبَ", "الوَلَدُ", "الدَّرْسَ"]),
    "Hebrew among Latin": ("the שלום עולם word", ["the", "שלום", "עולם", "word"]),
    "Thai": ("สวัสดีครับ", ["สวัสดี", "ครับ"]),
    "Chinese": ("中国人民", ["中国", "人民"]),
    "Japanese": ("東京タワーに行く", ["東京タワー", "に", "行く"]),
    "outside the basic plane": ("😀😀 word 𝒳 𠮷野", ["😀", "😀", "word", "𝒳", "𠮷", "野"]),
    "a joined emoji": ("a 👨‍👩‍👧 b", ["a", "👨‍👩‍👧", "b"]),
}


def words_of(tokenizer: LoadedTokenizer, text: str) -> list[str]:
    """The text cut where a token begins a word, without the spaces."""
    encoding = tokenizer.tokenizer.encode(text, add_special_tokens=False)
    _, starts, _ = tokenizer.encode_batch([text])
    begins = [encoding.offsets[token][0] for token in np.flatnonzero(starts)]
    return [text[begin:end].strip() for begin, end in zip(begins, [*begins[1:], len(text)], strict=True)]


@pytest.fixture(scope="module")
def bpe() -> LoadedTokenizer:
    """Bytes: every text can be spelt, and most characters here are several tokens."""
    return LoadedTokenizer(compose(["tokenizer=bpe", "tokenizer.vocab_size=400"]).tokenizer.train(iter(["the cat sat"] * 20)))


def with_words(tokenizer: LoadedTokenizer, way: str) -> LoadedTokenizer:
    return LoadedTokenizer(tokenizer.tokenizer, tokenizer.names, words=settle(way))


@pytest.mark.parametrize("script", SCRIPTS)
def test_words_of_any_script_begin_by_unicodes_rules(script: str, bpe: LoadedTokenizer) -> None:
    pytest.importorskip("icu4py")
    text, expected = SCRIPTS[script]
    assert words_of(with_words(bpe, "unicode"), text) == expected


def test_no_word_begins_at_a_combining_mark(bpe: LoadedTokenizer) -> None:
    pytest.importorskip("icu4py")
    text = "e\u0301\u0323\u0302x שׁ क्षि ก็"
    _, starts, _ = with_words(bpe, "unicode").encode_batch([text])
    offsets = bpe.tokenizer.encode(text, add_special_tokens=False).offsets
    assert {text[offsets[token][0]] for token in np.flatnonzero(starts)} <= set("e שकก")


def test_jieba_finds_chinese_words(bpe: LoadedTokenizer) -> None:
    pytest.importorskip("jieba")
    assert words_of(with_words(bpe, "jieba"), "我来到北京清华大学, ok") == ["我", "来到", "北京", "清华大学", ",", "ok"]


def test_a_corpus_may_come_in_words(bpe: LoadedTokenizer) -> None:
    assert words_of(with_words(bpe, "spaces"), "国家　主席 江 泽民。\u00a0x") == ["国家", "主席", "江", "泽民。", "x"]
    _, starts, lengths = with_words(bpe, "spaces").encode_batch(["a b", "", "c"])
    assert lengths.tolist()[1] == 0 and starts[lengths[0]] and len(starts) == lengths.sum()
    assert len(first_tokens("spaces", [], [])) == 0


def test_the_pieces_stay_and_the_store_is_another(bpe: LoadedTokenizer, tmp_path: Path) -> None:
    spaced = with_words(bpe, "spaces")
    assert (spaced.encode_batch(["it's, so"])[0] == bpe.encode_batch(["it's, so"])[0]).all()
    assert spaced.fingerprint != bpe.fingerprint
    spaced.save(tmp_path)
    for again in (load(tmp_path), pickle.loads(pickle.dumps(spaced))):
        assert (again.words, again.fingerprint) == ("spaces", spaced.fingerprint)
    given = compose(["tokenizer=pretrained", f"tokenizer.path={tmp_path}"]).tokenizer
    assert given.load().words == "spaces", "a folder's own words"
    assert "jieba" not in given.load().words


def test_a_given_tokenizer_may_find_words_too(bpe: LoadedTokenizer, tmp_path: Path) -> None:
    bpe.save(tmp_path)
    given = compose(["tokenizer=pretrained", f"tokenizer.path={tmp_path}", "tokenizer.words=spaces"]).tokenizer
    assert given.load().words == "spaces" and given.load().vocabulary.size == bpe.vocabulary.size
    assert given.fingerprint() != compose(["tokenizer=pretrained", f"tokenizer.path={tmp_path}"]).tokenizer.fingerprint()


def test_runs_from_before_the_key_keep_their_names() -> None:
    """Its value that says what was so names nothing; another one does."""
    config = compose(["tokenizer=wordpiece"])
    assert config.tokenizer.words == "own" and "words" not in settings_of(config.tokenizer)
    assert settings_of(compose(["tokenizer.words=spaces"]).tokenizer)["words"] == "spaces"
    assert store_key(config) != store_key(compose(["tokenizer.words=spaces"]))
    from mlm_lab.leaves import build
    from mlm_lab.run_config import to_dict

    problems: list = []
    old = {name: value for name, value in to_dict(config.tokenizer).items() if name != "words"}
    assert build(old, "tokenizer", problems) == config.tokenizer and not problems


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"tokenizer.words='letters': must be own, spaces, unicode, jieba"):
        compose(["tokenizer.words=letters"])
    monkeypatch.setitem(settle.__globals__["PACKAGES"], "jieba", ("no_such_package", "zh"))
    with pytest.raises(UserError, match=r"pip install 'mlm_lab\[zh\]'"):
        settle("jieba")


def test_whole_words_are_masked_together_by_what_the_store_says() -> None:
    """The unit `word` reads the store's word starts, whoever found them."""
    from mlm_lab.corruption.units import word

    store = many_documents(10)
    assert word.starts(store) is store.word_starts
