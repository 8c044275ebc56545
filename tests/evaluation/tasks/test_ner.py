"""CoNLL columns: schemes, quirks, errors, and the published entity counts (traps.md 32)."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from mlm_lab.errors import UserError
from mlm_lab.evaluation.cells import fingerprint_of
from mlm_lab.evaluation.conll import read_conll
from mlm_lab.evaluation.spans import extract_spans
from mlm_lab.evaluation.task import TaggedExample, TaskData
from tests.evaluation.protocol import evaluation, task

IOB1 = "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\nPeter NNP I-NP I-PER\nAnna NNP I-NP B-PER\n"
SENTENCES = [TaggedExample(("EU", "rejects"), ("B-ORG", "O")), TaggedExample(("Peter", "Anna"), ("B-PER", "B-PER"))]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "ner" / "conll2003"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "text",
    [
        IOB1,
        IOB1.replace("I-ORG", "B-ORG").replace("I-PER", "B-PER"),
        IOB1.replace("I-ORG", "S-ORG").replace("I-PER", "S-PER").replace("B-PER", "S-PER"),
        IOB1.replace("\n", "\r\n"),
        IOB1.replace(" ", "\t"),
        IOB1.replace(" ", "   ").removesuffix("\n"),
        "﻿" + IOB1,
    ],
)
def test_trap_32_columns_and_schemes(tmp_path, text):
    (tmp_path / "train.txt").write_bytes(text.encode())
    assert read_conll(tmp_path / "train.txt") == SENTENCES


def test_odd_white_space_belongs_to_words(tmp_path):
    text = "a\u00a0b\tO\n\u2028\tO\nc\u0085d\tB-X\n"
    (tmp_path / "train.txt").write_text(text, encoding="utf-8", newline="")
    assert read_conll(tmp_path / "train.txt") == [TaggedExample(("a\u00a0b", "\u2028", "c\u0085d"), ("O", "O", "B-X"))]


def test_wikiann_prefix_is_taken_off(tmp_path):
    (tmp_path / "ner/wikiann-en").mkdir(parents=True)
    for stem in ("train", "dev"):
        (tmp_path / f"ner/wikiann-en/{stem}.txt").write_text("en:Sioux\tB-ORG\nen:en:\tO\n")
    data = task("wikiann").load(evaluation(data_dir=str(tmp_path)), tmp_path)
    assert data.train[0].words == ("Sioux", "en:")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a N O\nb O\n", ["line 2", "2: b O", "3"]),
        ("a N O\n\nb N N O\n", ["line 3", "4"]),
        ("word\n", ["line 1", "at least 2"]),
        ("a N O\nb N PER\n", ["line 2", "'PER'", "B- I- E- S-"]),
        ("a N O\nb N X-PER\n", ["line 2", "'X-PER'"]),
        ("\n\n-DOCSTART- O\n\n", ["no sentences"]),
    ],
)
def test_bad_lines_are_told_with_file_and_line(folder, tmp_path, text, parts):
    (folder / "train.txt").write_text(text)
    (folder / "valid.txt").write_text("a N O\n")
    with pytest.raises(UserError) as error:
        task("conll2003").load(evaluation(data_dir=str(tmp_path)), tmp_path)
    assert "train.txt" in str(error.value)
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_dev_and_test_stay_apart(folder, tmp_path):
    (folder / "train.conll").write_text("a B-X\n")
    (folder / "dev.txt.gz").write_bytes(gzip.compress(b"b B-Y\n"))
    (folder / "test.annotated.conll").write_text("c O\n")
    data = task("conll2003").load(evaluation(data_dir=str(tmp_path)), tmp_path)
    assert (data.train[0].words, data.dev[0].words, data.extra["test"][0].words) == (("a",), ("b",), ("c",))
    assert data.label_names == ("O", "B-X", "B-Y", "I-X", "I-Y")


def test_trap_32_document_context_is_a_key(folder, tmp_path):
    border, settings = "-DOCSTART- O\n\n", evaluation(data_dir=str(tmp_path))
    (folder / "train.txt").write_text(f"a O\n\n{border}b O\n\nc O\nd O\n\n{border}e O\n{border}")
    (folder / "valid.txt").write_text("f O\n\ng O\n")
    data = task("conll2003", document_context=True).load(settings, tmp_path)
    two = (("b",), ("c", "d"))
    assert [(example.document, example.place) for example in data.train] == [((("a",),), 0), (two, 0), (two, 1), ((("e",),), 0)]
    assert [example.document for example in data.dev] == [(), ()]
    assert data.notes == ("no document context in valid.txt: no -DOCSTART- lines",)
    alone = task("conll2003").load(settings, tmp_path)
    assert {example.document for example in alone.train} == {()} and alone.notes == ()
    changed = TaskData("tagging", data.label_names, [data.train[1]._replace(document=(("b",), ("x",)))], data.dev)
    assert fingerprint_of(changed) != fingerprint_of(replace(changed, train=data.train[1:2])), "the words around are examples too"


@pytest.mark.parametrize("missing", ["train.txt", "valid.txt"])
def test_a_missing_file_is_refused_by_the_check(folder, tmp_path, missing):
    for stem in ("train.txt", "valid.txt"):
        (folder / stem).write_text("a O\n")
    task("conll2003").check(evaluation(data_dir=str(tmp_path)))
    (folder / missing).unlink()
    with pytest.raises(UserError, match="file is missing"):
        task("conll2003").check(evaluation(data_dir=str(tmp_path)))


def test_without_a_folder_the_task_is_refused():
    with pytest.raises(UserError, match="data_dir"):
        task("wnut17").check(evaluation())


def test_the_feature_based_task_is_the_same_corpus():
    assert (task("conll2003").feature_based, task("conll2003_features").feature_based) == (False, True)
    assert task("conll2003").folder == task("conll2003_features").folder


@pytest.mark.parametrize(
    ("name", "entities"),
    [
        ("conll2003", (23499, 5942, 5648)),
        ("wnut17", (1975, 836, 1079)),
        ("wikiann", (27931, 14146, 13958)),
        ("msra", (29113, 2827, 2957)),  # 29108, 2827, 2956 tags with B-: a few entities begin with I-, which conlleval counts too
        ("weibo", (1895, 389, 418)),  # 1885, 389, 414
    ],
)
def test_trap_32_published_entity_counts(shared_data, tmp_path, name, entities):
    data = task(name).load(evaluation(data_dir=str(shared_data)), tmp_path)
    parts = (data.train, data.dev, data.extra["test"])
    assert tuple(sum(len(extract_spans(example.tags)) for example in part) for part in parts) == entities


def test_a_place_in_the_segmented_word_is_no_text(tmp_path):
    (tmp_path / "zh/ner-weibo").mkdir(parents=True)
    for stem in ("train", "dev"):
        (tmp_path / f"zh/ner-weibo/{stem}.conll").write_text("现0\tB-PER.NOM\n10\tI-PER.NOM\n", encoding="utf-8")
    data = task("weibo").load(evaluation(data_dir=str(tmp_path)), tmp_path)
    assert data.train[0].words == ("现", "1") and "B-PER.NOM" in data.label_names
    with pytest.raises(UserError, match=r"zh/ner-weibo/train.txt: evaluation.data_dir=PATH"):
        task("weibo").check(evaluation())
