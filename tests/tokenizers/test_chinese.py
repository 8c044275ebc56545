"""BERT's Chinese: a token for each character, in both scripts, and words by what marks them."""

from __future__ import annotations

import pytest

from mlm_lab.config import compose
from mlm_lab.errors import InvalidFields
from mlm_lab.tokenizers.chinese import level_one
from mlm_lab.tokenizers.loading import LoadedTokenizer

SIMPLIFIED = "我们在国家图书馆读书，学习汉语。"
TRADITIONAL = "我們在國家圖書館讀書，學習漢語。"


@pytest.fixture(scope="module")
def tokenizer() -> LoadedTokenizer:
    """Trained on simplified text alone."""
    return LoadedTokenizer(compose(["tokenizer=chinese"]).tokenizer.train(iter([SIMPLIFIED, "BERT reads 汉语 too"] * 30)))


@pytest.mark.parametrize("text", [SIMPLIFIED, TRADITIONAL])
def test_each_character_is_a_token_in_both_scripts(tokenizer: LoadedTokenizer, text: str) -> None:
    ids, starts, _ = tokenizer.encode_batch([text])
    assert [tokenizer.token(i) for i in ids] == list(text) and starts.all()
    assert tokenizer.vocabulary.unk_id not in ids


def test_other_scripts_are_pieces_and_rare_characters_unknown(tokenizer: LoadedTokenizer) -> None:
    assert tokenizer.encode("bert") and tokenizer.vocabulary.unk_id not in tokenizer.encode("Zürich")
    assert tokenizer.encode("𪚥") == [tokenizer.vocabulary.unk_id]


def test_the_common_characters_are_those_of_the_standards() -> None:
    assert (len(level_one("gb2312")), len(level_one("big5"))) == (3755, 5401)
    assert level_one("gb2312")[0] == "啊" and level_one("big5")[-1] == "籲"
    with pytest.raises(InvalidFields, match=r"tokenizer.vocab_size=4096: must be 7078 or more"):
        compose(["tokenizer=chinese", "tokenizer.vocab_size=4096"])


def test_the_share_of_unknown_characters_of_real_text_is_small(shared_data) -> None:
    """The People's Daily and a novel of the 14th century, under one trained on a part of the first."""
    import gzip
    import json

    with gzip.open(shared_data / "zh/peoples-daily-1998/train.txt.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    with gzip.open(shared_data / "zh/sanguo-novel/docs.jsonl.gz", "rt", encoding="utf-8") as file:
        novel = [json.loads(line)["text"][:2000] for line in file][:20]
    shares = {}
    for option in (["tokenizer=chinese"], ["tokenizer=wordpiece", "tokenizer.vocab_size=8192"]):
        tokenizer = LoadedTokenizer(compose(option).tokenizer.train(iter(lines[:1500])))
        for name, texts in (("news", lines[-300:]), ("novel", novel), ("traditional", [TRADITIONAL])):
            ids, _, _ = tokenizer.encode_batch(texts)
            shares[option[0].partition("=")[2], name] = float((ids == tokenizer.vocabulary.unk_id).mean())
    assert shares["chinese", "news"] < 0.001 and shares["chinese", "novel"] < 0.02 and shares["chinese", "traditional"] == 0
    assert shares["wordpiece", "novel"] > 0.03 and shares["wordpiece", "traditional"] > 0.5, "what the common characters are for"
