"""Trained tokenizers: the same bits each time, the size asked for, no special token from text."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm_lab.errors import InvalidFields
from mlm_lab.tokenizers.loading import LoadedTokenizer, load
from mlm_lab.tokenizers.training import PIECE_CHARACTERS, Sample, alphabet_of
from tests.conftest import REPOSITORY
from tests.tokenizers.trained import KINDS, STRANGE, reference_texts, train

SPELT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<pad>", "<unk>", "<s>", "</s>", "<mask>", "<extra_id_0>", "<extra_id_19>")


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind: str) -> LoadedTokenizer:
    return train(kind)


@pytest.fixture(scope="module")
def fingerprints() -> list[dict[str, str]]:
    """By kind and case, from processes with 1, 2, 3 and again 1 threads."""
    found = []
    for threads in ("1", "2", "3", "1"):
        command = [sys.executable, "-c", "from tests.tokenizers.trained import print_fingerprints; print_fingerprints()"]
        environment = {**os.environ, "RAYON_NUM_THREADS": threads}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=REPOSITORY)
        found.append(dict(line.rsplit(" ", 1) for line in result.stdout.splitlines()))
    return found


@pytest.mark.parametrize("lowercase", [False, True])
def test_every_run_and_thread_count_gives_the_same_bits(kind: str, lowercase: bool, fingerprints: list[dict[str, str]]):
    assert len({found[f"{kind} {lowercase}"] for found in fingerprints}) == 1


def test_vocabulary_size_counts_special_tokens_and_sentinels(kind: str, tokenizer: LoadedTokenizer):
    vocabulary = tokenizer.vocabulary
    assert vocabulary.size == 900
    assert vocabulary.padded_size == 960
    assert vocabulary.sentinel_ids == tuple(range(880, 900))
    assert [tokenizer.token(i) for i in vocabulary.sentinel_ids] == [f"<extra_id_{k}>" for k in range(20)]
    names = [tokenizer.token(i) for i in (vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id)]
    assert names == (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] if kind == "wordpiece" else ["<pad>", "<unk>", "<s>", "</s>", "<mask>"])
    assert vocabulary.special_ids == (*range(5), *vocabulary.sentinel_ids)


def test_trap_27_padded_rows_and_special_tokens_are_never_drawn(tokenizer: LoadedTokenizer):
    vocabulary = tokenizer.vocabulary
    assert vocabulary.padded_size % 64 == 0
    assert set(vocabulary.ordinary_ids) == set(range(vocabulary.size)) - set(vocabulary.special_ids)
    assert vocabulary.is_special[vocabulary.size :].all()
    assert len(vocabulary.is_special) == vocabulary.padded_size


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(st.sampled_from(SPELT) | st.text(max_size=12), max_size=8), gap=st.sampled_from(["", " ", "▁", "##"]))
def test_no_text_gives_a_special_token(tokenizer: LoadedTokenizer, parts: list[str], gap: str):
    vocabulary = tokenizer.vocabulary
    never = set(vocabulary.special_ids) - {vocabulary.unk_id}
    ids, _, _ = tokenizer.encode_batch([gap.join(parts)])
    assert never.isdisjoint(ids)
    assert never.isdisjoint(i for word in tokenizer.encode_words(parts) for i in word)


def test_spelt_special_tokens_are_ordinary_text(kind: str, tokenizer: LoadedTokenizer):
    """Every ASCII character is in the alphabet, so that nothing here is UNK either, for the tokens of the other kinds as well."""
    text = " ".join(SPELT) + " [MASK] [SEP] <extra_id_0>"
    for way in (tokenizer, pickle.loads(pickle.dumps(tokenizer))):
        assert set(way.encode(text)).isdisjoint(tokenizer.vocabulary.special_ids)
    decoded = tokenizer.decode(tokenizer.encode(text)).replace(" ", "")
    assert decoded == text.replace(" ", "")


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_byte_level_bpe_gives_the_text_back(bpe: LoadedTokenizer, text: str):
    assert bpe.decode(bpe.encode(text)) == text


@pytest.fixture(scope="module")
def bpe() -> LoadedTokenizer:
    return train("bpe")


def test_lowercase_removes_accents_as_bert_does(kind: str):
    lower = train(kind, lowercase=True)
    assert lower.encode("Élan NAÏVE") == lower.encode("elan naive")
    cased = train(kind)
    assert cased.encode("Elan") != cased.encode("elan")
    assert cased.encode("Élan") != cased.encode("Elan")


def test_trap_6_words_come_from_the_word_ids(kind: str, tokenizer: LoadedTokenizer):
    """ "end." is two words although nothing stands between them; a word of several pieces is one; a text starts a word."""
    texts = ["the end.", "", "incomprehensibilities", "incomprehensibilities"]
    ids, starts, lengths = tokenizer.encode_batch(texts)
    assert lengths.sum() == len(ids) == len(starts)
    assert lengths[1] == 0
    assert starts[: lengths[0]].sum() == 3
    assert lengths[2] > 1
    assert starts[lengths[0] :].tolist() == ([True] + [False] * (lengths[2] - 1)) * 2


def test_combining_marks_do_not_break_words_of_other_scripts():
    """Devanagari vowels are marks; GPT-2's own pattern cuts the word at each."""
    for kind in ("bpe", "unigram"):
        _, starts, _ = train(kind).encode_batch(["हिन्दी"])
        assert starts.sum() == 1, kind


def test_chinese_characters_are_words_of_their_own_in_wordpiece():
    _, starts, _ = train("wordpiece").encode_batch(["中文字"])
    assert starts.all()
    assert len(starts) == 3


def test_words_given_one_by_one_are_never_lost(tokenizer: LoadedTokenizer):
    words = ["Don't", "\u200b", ".", " ", "York"]
    encoded = tokenizer.encode_words(words)
    assert len(encoded) == len(words)
    assert all(encoded)
    assert tokenizer.encode_words([]) == []


def test_saved_and_loaded_it_is_the_same(tokenizer: LoadedTokenizer, tmp_path):
    again = load(tokenizer.save(tmp_path))
    assert again.vocabulary == tokenizer.vocabulary
    assert load(tmp_path).fingerprint == tokenizer.fingerprint
    assert again.encode(STRANGE) == tokenizer.encode(STRANGE)


def test_another_setting_is_another_fingerprint(tokenizer: LoadedTokenizer, kind: str):
    assert train(kind, vocab_size=899).fingerprint != tokenizer.fingerprint


def test_a_text_is_a_text_with_or_without_company(tokenizer: LoadedTokenizer):
    texts = reference_texts(5_000)
    ids, starts, lengths = tokenizer.encode_batch(texts)
    borders = lengths.cumsum()
    for text, stop, length in zip(texts, borders, lengths, strict=True):
        alone, alone_starts, _ = tokenizer.encode_batch([text])
        assert alone.tolist() == ids[stop - length : stop].tolist()
        assert alone_starts.tolist() == starts[stop - length : stop].tolist()


def test_a_corpus_without_text_still_trains(kind: str):
    """It is the token store that refuses it, with the reason."""
    config = KINDS[kind](vocab_size=600, lowercase=True, num_sentinels=2, train_characters=100, words="own")
    assert LoadedTokenizer(config.train(iter(["a b"]))).vocabulary.size <= 600


def test_sizes_that_cannot_be_are_refused_all_at_once(kind: str):
    with pytest.raises(InvalidFields) as caught:
        KINDS[kind](vocab_size=100, lowercase=True, num_sentinels=-1, train_characters=0, words="own")
    assert {problem.field for problem in caught.value.problems} == {"vocab_size", "num_sentinels", "train_characters"}


def test_the_sample_is_bounded_and_spread_over_the_corpus():
    texts = [f"{number:06d} " + "x" * 93 for number in range(10_000)]
    sample = Sample.of(iter(texts), 50_000)
    numbers = [int(text[:6]) for text in sample.texts]
    assert 20_000 < sum(map(len, sample.texts)) <= 50_000
    assert numbers == sorted(numbers)
    assert len({b - a for a, b in pairwise(numbers)}) == 1
    assert numbers[-1] > 9_900


def test_a_long_text_is_sampled_in_pieces():
    text = " ".join(f"word{number}" for number in range(50_000))
    sample = Sample.of([text], 40_000)
    assert max(map(len, sample.texts)) <= PIECE_CHARACTERS
    assert sample.texts[-1].split()[-1].removeprefix("word") > "4"
    assert "".join(Sample.of([text], len(text)).texts) == text


def test_the_alphabet_keeps_what_is_frequent_and_breaks_ties_by_code_point():
    from tokenizers import normalizers

    texts = ["éééé ööö çç", "日本" * 50, "ab"]
    keep = alphabet_of(texts, normalizers.NFC(), 256 + 4 * 3)
    assert [c for c in keep if not c.isascii()] == ["é", "日", "本"]
    assert set("azAZ09<>[]") <= set(keep)
    assert "A" not in alphabet_of(texts, normalizers.Lowercase(), 500)
