"""A given tokenizer: special tokens by name or from its config, what stands in its file put aside, clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from mlm_lab.errors import UserError
from mlm_lab.tokenizers.loading import load
from mlm_lab.tokenizers.pretrained import Pretrained

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write(folder: Path, specials: tuple[str, ...], words: tuple[str, ...] = ("a", "b", "mask", "[", "]"), unk: str = "[UNK]") -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate((*specials, *words))}, unk_token=unk))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(specials))
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def given(path: Path, num_sentinels: int = 0):
    return Pretrained(path=str(path), num_sentinels=num_sentinels, new_words=None, words="own").load()


def test_special_tokens_are_found_by_their_usual_names(tmp_path: Path):
    write(tmp_path, BERT)
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        vocabulary = given(path).vocabulary
        found = (vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id)
        assert found == (0, 1, 2, 3, 4)
    assert given(tmp_path).encode("[mask] a") == [8, 7, 9, 5]


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_special_tokens_are_found_from_the_folders_own_config(tmp_path: Path, file: str):
    write(tmp_path, ("<nul>", "<??>", "<begin>", "<end>", "<hole>", "[MASK]"), unk="<??>")
    roles = {"pad_token": "<nul>", "unk_token": {"content": "<??>"}, "cls_token": "<begin>", "sep_token": "<end>", "mask_token": "<hole>"}
    (tmp_path / file).write_text(json.dumps(roles))
    vocabulary = given(tmp_path).vocabulary
    assert (vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (0, 1, 2, 3, 4)
    again = load(given(tmp_path).save(tmp_path / "copy"))
    assert again.vocabulary == vocabulary


def test_a_missing_special_token_is_named(tmp_path: Path):
    write(tmp_path, ("[PAD]", "[UNK]", "[CLS]"))
    with pytest.raises(UserError) as caught:
        given(tmp_path)
    text = str(caught.value)
    assert "no sep and no mask token" in text
    assert "[PAD], [UNK], [CLS]" in text
    assert len(text.splitlines()) <= 12


def test_truncation_padding_and_templates_of_the_file_are_put_aside(tmp_path: Path):
    tokenizer = write(tmp_path, BERT)
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8, pad_id=0, pad_token="[PAD]")
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = given(tmp_path)
    ids, _, lengths = loaded.encode_batch(["a b a b a", "b"])
    assert lengths.tolist() == [5, 1]
    assert ids.tolist() == [5, 6, 5, 6, 5, 6]
    assert loaded.encode("a b a b a") == [5, 6, 5, 6, 5]


def test_trap_3_reserved_and_added_tokens_and_gaps_are_never_drawn(tmp_path: Path):
    vocabulary = {word: number for number, word in enumerate((*BERT, "[unused0]", "a", "madeupword0001"))} | {"b": 20}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.add_tokens(["added"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = given(tmp_path, num_sentinels=2).vocabulary
    names = load(tmp_path).tokenizer
    assert [names.id_to_token(i) for i in found.ordinary_ids] == ["a", "b"]
    assert found.size == 21


def test_sentinels_are_added_at_the_end_where_they_are_lacking(tmp_path: Path):
    write(tmp_path, (*BERT, "<extra_id_1>"))
    assert given(tmp_path).vocabulary.sentinel_ids == (5,)
    with_more = given(tmp_path, num_sentinels=3)
    assert [with_more.token(i) for i in with_more.vocabulary.sentinel_ids] == ["<extra_id_0>", "<extra_id_1>", "<extra_id_2>"]
    assert with_more.vocabulary.sentinel_ids == (11, 5, 12)
    assert with_more.vocabulary.size == 13
    assert with_more.fingerprint != given(tmp_path).fingerprint


def test_a_file_that_is_not_there_or_no_tokenizer_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        given(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"AutoTokenizer"):
        given(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"not a tokenizer\.json"):
        given(tmp_path)
    write(tmp_path, BERT)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        given(tmp_path)


def test_without_unk_no_text_gives_its_id(tmp_path: Path):
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate("ab")}, []))
    tokenizer.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = given(tmp_path)
    assert loaded.vocabulary.unk_id == loaded.vocabulary.pad_id
    assert loaded.encode("ab") == [0, 1]


def test_transformers_reads_what_was_saved_and_encodes_alike(tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    from tests.tokenizers.trained import train

    ours = train("wordpiece", lowercase=True)
    ours.save(tmp_path)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    text = "The statement's value, evaluated."
    vocabulary = ours.vocabulary
    assert theirs(text)["input_ids"] == [vocabulary.cls_id, *ours.encode(text), vocabulary.sep_id]
