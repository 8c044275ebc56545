"""Own tasks: csv, tsv, jsonl and CoNLL files, a dev part cut by hash, errors."""

from __future__ import annotations

import json

import pytest

from mlm_lab.errors import UserError
from mlm_lab.evaluation.task import SequenceExample
from tests.evaluation.protocol import evaluation, task


def load(path, **changes):
    own = task("own", name="mine", **changes)
    settings = evaluation(files={"mine": str(path)})
    own.check(settings)
    return own.load(settings, path.parent)


@pytest.fixture
def folder(tmp_path):
    """A folder with train.csv and dev.jsonl."""
    (tmp_path / "train.csv").write_text('text,label\n"good, really",pos\n"two\nlines",neg\n')
    (tmp_path / "dev.jsonl").write_text('{"text": "fine", "label": "pos"}\n\n{"text": "bad", "label": "neg", "more": 1}\n')
    return tmp_path


def test_a_folder_has_parts(folder):
    data = load(folder)
    assert data.label_names == ("neg", "pos")
    assert data.train == [SequenceExample("good, really", None, 1), SequenceExample("two\nlines", None, 0)]
    assert data.dev == [SequenceExample("fine", None, 1), SequenceExample("bad", None, 0)]
    assert data.notes == ()


def test_a_label_of_dev_that_train_does_not_have(folder):
    (folder / "dev.jsonl").write_text('{"text": "fine", "label": "pos"}\n{"text": "so", "label": "neutral"}\n')
    with pytest.raises(UserError) as error:
        load(folder)
    assert all(part in str(error.value) for part in ("dev.jsonl, line 2", "'neutral'", "neg, pos"))


def test_pairs_and_values(tmp_path):
    (tmp_path / "mine.tsv").write_text('a\tb\tscore\n"x\ty"\t1.5\n' + "".join(f"text {i}\tmore\t{i}\n" for i in range(40)))
    data = load(tmp_path / "mine.tsv", text_column="a", pair_column="b", label_column="score", regression=True)
    assert data.kind == "regression"
    assert SequenceExample('"x', 'y"', 1.5) in [*data.train, *data.dev]


def test_dev_is_cut_by_hash_of_the_text(tmp_path):
    rows = [{"text": f"text {i % 500}", "label": i % 2} for i in range(1000)]
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    data = load(file)
    assert len(data.train) + len(data.dev) == 1000
    assert 50 < len(data.dev) < 150
    assert not {example.text_a for example in data.train} & {example.text_a for example in data.dev}
    assert "cut for dev" in data.notes[0]
    file.write_text("\n".join(map(json.dumps, rows[::-1])))  # order plays no part
    assert {example.text_a for example in load(file).dev} == {example.text_a for example in data.dev}


def test_conll_files_may_have_plain_tags(tmp_path):
    (tmp_path / "mine.conll").write_text("".join(f"word{i} NOUN\nruns VERB\n\n" for i in range(60)))
    data = load(tmp_path / "mine.conll")
    assert (data.kind, data.label_names) == ("tagging", ("NOUN", "VERB"))
    assert len(data.train) + len(data.dev) == 60


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("mine.csv", "sentence,label\na,1\n", ["no text", "sentence, label", "text_column"]),
        ("mine.csv", "text,label\n", ["no examples"]),
        ("mine.csv", "text,label\nonly the text\n", ["no label", "line 2"]),
        ("mine.jsonl", '{"text": "a", "label": 1}\nnot json\n', ["line 2", "not JSON"]),
        ("mine.jsonl", "[1]\n", ["line 1", "not a JSON object"]),
        ("mine.xlsx", "", ["no such file", ".conll, .txt, .csv, .tsv, .jsonl"]),
        ("mine.csv", "text,label\na,1\n", ["dev part is empty"]),
        ("mine.csv", "text,label\na,1\nb\rc,1\n", ["mine.csv, line 2", "not a row of a table"]),
    ],
)
def test_what_cannot_be_read(tmp_path, name, text, parts):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        load(tmp_path / name, dev_share=0.01)
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_a_missing_file_is_refused_by_the_check(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        task("own", name="mine").check(evaluation(files={"mine": str(tmp_path / "nothing.csv")}))
    with pytest.raises(UserError, match="has no file"):
        task("own", name="mine").check(evaluation())


def test_a_value_that_is_none(tmp_path):
    for value in ("high", "nan", "inf"):
        (tmp_path / "mine.csv").write_text(f"text,label\na,1\nb,{value}\n")
        with pytest.raises(UserError, match="line 3"):
            load(tmp_path / "mine.csv", regression=True)


def test_a_text_of_a_million_characters(tmp_path):
    lengths = [200_000, *range(1, 20)]
    (tmp_path / "mine.csv").write_text("text,label\n" + "".join(f"{'long ' * length},{length % 2}\n" for length in lengths))
    data = load(tmp_path / "mine.csv", dev_share=0.5)
    assert max(len(example.text_a) for example in data.train + data.dev) == 1_000_000
