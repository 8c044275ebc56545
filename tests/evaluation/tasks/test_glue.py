"""GLUE files: official layouts, their quirks, their errors, and the real files."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from mlm_lab.errors import UserError
from mlm_lab.evaluation.glue_submission import sets_of
from mlm_lab.evaluation.task import SequenceExample
from mlm_lab.evaluation.tasks import glue
from tests.evaluation.protocol import evaluation, task

TRAIN = {
    "cola": ("CoLA", 'gj04\t1\t\tIt "works.\ngj04\t0\t*\tWorks it.\n'),
    "sst2": ("SST-2", "sentence\tlabel\na charm \t1\nbleak \t0\n"),
    "mrpc": ("MRPC", '﻿Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t10\t11\t"He said\tHe says"\n0\t10\t12\tOne\tTwo\n'),
    "stsb": (
        "STS-B",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n0\tg\tf\ty\t0\ts\ts\tA\tB\t3.25\n",
    ),
    "qqp": ("QQP", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWhy?\tHow?\t0\n1\t3\t4\tcut in\n5\t1\t2\tA?\tA?\t1\n"),
    "mnli": ("MNLI", "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tA\tB\tneutral\tcontradiction\n1\tA\tC\tneutral\tneutral\n"),
    "qnli": ("QNLI", "index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tentailment\n"),
    "rte": ("RTE", "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tnot_entailment\r\n"),
    "wnli": ("WNLI", "index\tsentence1\tsentence2\tlabel\n0\tA\tB\t1\n"),
}
EXAMPLES = {
    "cola": [('It "works.', None, 1), ("Works it.", None, 0)],
    "sst2": [("a charm ", None, 1), ("bleak ", None, 0)],
    "mrpc": [('"He said', 'He says"', 1), ("One", "Two", 0)],
    "stsb": [("A", "B", 3.25)],
    "qqp": [("Why?", "How?", 0), ("A?", "A?", 1)],
    "mnli": [("A", "B", 2), ("A", "C", 1)],
    "qnli": [("Who?", "He.", 0)],
    "rte": [("A", "B", 1)],
    "wnli": [("A", "B", 1)],
}


def write(tmp_path, name: str, text: str | None = None, zipped: bool = False):
    """train and dev files of a task, alike. Returns the settings that read them."""
    folder, default = TRAIN[name]
    directory = tmp_path / "glue" / folder
    directory.mkdir(parents=True, exist_ok=True)
    for stem in ("train", "dev_matched", "dev_mismatched") if name == "mnli" else ("train", "dev"):
        content = (default if text is None else text).encode()
        (directory / f"{stem}.tsv{'.gz' if zipped else ''}").write_bytes(gzip.compress(content) if zipped else content)
    return evaluation(data_dir=str(tmp_path))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", TRAIN)
def test_trap_31_every_task_reads_its_layout(tmp_path, name, zipped):
    settings = write(tmp_path, name, zipped=zipped)
    glue_task = task(name)
    glue_task.check(settings)
    data = glue_task.load(settings, tmp_path)
    assert data.train == data.dev == [SequenceExample(*example) for example in EXAMPLES[name]]
    assert data.kind == ("regression" if name == "stsb" else "classification")
    assert set(data.extra) == ({"mismatched"} if name == "mnli" else set())
    assert bool(data.notes) == (name == "qqp")  # its cut row is counted


def test_without_the_mismatched_file_the_task_says_so(tmp_path):
    settings = write(tmp_path, "mnli")
    (tmp_path / "glue/MNLI/dev_mismatched.tsv").unlink()
    data = task("mnli").load(settings, tmp_path)
    assert data.extra == {}
    assert "dev_mismatched" in data.notes[0]


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("sst2", "sentence\tlabel\ngood\t1\nbad\t2\n", ["train.tsv, line 3", "'2'", "0, 1"]),
        ("rte", "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tneutral\n", ["line 2", "'neutral'", "entailment, not_entailment"]),
        ("stsb", "sentence1\tsentence2\tscore\nA\tB\t5.1\n", ["line 2", "'5.1'", "0 to 5"]),
        ("stsb", "sentence1\tsentence2\tscore\nA\tB\tnan\n", ["line 2", "'nan'"]),
        ("cola", "gj04\t1\tIt works.\n", ["train.tsv, line 1", "3"]),
        ("mrpc", "Quality\t#1 String\n1\tA\n", ["line 1", "#2 String"]),
        ("sst2", "sentence\tlabel\n", ["no examples"]),
    ],
)
def test_what_cannot_be_read_is_told_with_file_and_line(tmp_path, name, text, parts):
    settings = write(tmp_path, name, text)
    with pytest.raises(UserError) as error:
        task(name).load(settings, tmp_path)
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_damaged_files_are_told(tmp_path):
    settings = write(tmp_path, "sst2")
    (tmp_path / "glue/SST-2/train.tsv").write_bytes(b"sentence\tlabel\nfine\t1\ncaf\xe9\t0\n")
    with pytest.raises(UserError, match="not UTF-8") as error:
        task("sst2").load(settings, tmp_path)
    assert "line 3" in str(error.value)
    (tmp_path / "glue/SST-2/train.tsv").unlink()
    whole = gzip.compress(TRAIN["sst2"][1].encode())
    (tmp_path / "glue/SST-2/train.tsv.gz").write_bytes(whole[:-9])
    with pytest.raises(UserError, match="cut short"):
        task("sst2").load(settings, tmp_path)


def test_a_missing_file_is_refused_by_the_check(tmp_path):
    settings = write(tmp_path, "sst2")
    (tmp_path / "glue/SST-2/dev.tsv").unlink()
    with pytest.raises(UserError, match=r"dev\.tsv"):
        task("sst2").check(settings)


def test_without_the_hub_a_folder_is_asked_for():
    with pytest.raises(UserError, match="out of reach") as error:
        task("rte").check(evaluation())
    assert "evaluation.data_dir=PATH" in str(error.value)


def test_the_hub_s_copy(monkeypatch, tmp_path):
    import datasets

    rows = datasets.Dataset.from_dict({"premise": ["A", "B"], "hypothesis": ["C", "D"], "label": [2, 0], "idx": [0, 1]})
    unlabelled = rows.map(lambda row: {"label": -1})
    parts = {"train": rows, "validation_matched": rows.select([0]), "validation_mismatched": rows.select([1]), "test_matched": unlabelled}
    monkeypatch.setattr(glue, "_check_hub", lambda name: None)
    monkeypatch.setattr(datasets, "load_dataset", lambda path, name: datasets.DatasetDict(parts))
    data = task("mnli").load(evaluation(), tmp_path)
    assert data.train == [SequenceExample("A", "C", 2), SequenceExample("B", "D", 0)]
    assert (data.dev, data.extra) == (data.train[:1], {"mismatched": data.train[1:]})


REAL = {"cola": (8551, 1043), "sst2": (67349, 872), "mrpc": (3668, 408), "stsb": (5749, 1500), "rte": (2490, 277), "wnli": (635, 71)}


@pytest.mark.parametrize("name", REAL)
def test_real_files(shared_data, tmp_path, name):
    """traps.md 30: RTE dev is 277."""
    data = task(name).load(evaluation(data_dir=str(shared_data)), tmp_path)
    assert (len(data.train), len(data.dev)) == REAL[name]
    if name == "mrpc":
        assert sum(example.label for example in data.dev) == 279


def test_test_sets_are_read_where_they_are_asked_for(tmp_path):
    settings = replace(write(tmp_path, "mnli"), submission=True)
    header = "index\tpromptID\tsentence1\tsentence2\n"
    for folder, stem, texts in (
        ("MNLI", "test_matched", "A\tB"),
        ("MNLI", "test_mismatched", "C\tD"),
        ("diagnostic", "diagnostic", "E\tF"),
    ):
        (tmp_path / "glue" / folder).mkdir(exist_ok=True)
        (tmp_path / "glue" / folder / f"{stem}.tsv").write_text(f"{header}0\t7\t{texts}\n1\t8\tG\tH\n")
    data = task("mnli").load(settings, tmp_path)
    assert {name: examples[0][:2] for name, examples in data.unlabelled.items()} == {
        "MNLI-m.tsv": ("A", "B"),
        "MNLI-mm.tsv": ("C", "D"),
        "AX.tsv": ("E", "F"),
    }
    assert task("mnli").load(write(tmp_path, "mnli"), tmp_path).unlabelled == {}
    (tmp_path / "glue/diagnostic/diagnostic.tsv").unlink()
    assert any("no AX.tsv for the test server" in note for note in task("mnli").load(settings, tmp_path).notes)


def test_cola_s_test_set_has_a_header_and_no_row_of_one_may_be_missing(tmp_path):
    settings = replace(write(tmp_path, "cola"), submission=True)
    (tmp_path / "glue/CoLA/test.tsv").write_text("index\tsentence\n0\tBill whistled.\n")
    assert task("cola").load(settings, tmp_path).unlabelled["CoLA.tsv"] == [SequenceExample("Bill whistled.", None, 0)]
    (tmp_path / "glue/CoLA/test.tsv").write_text("index\tsentence\n0\n")
    with pytest.raises(UserError, match="too few columns"):
        task("cola").load(settings, tmp_path)


@pytest.mark.parametrize(
    ("name", "answers", "lines"),
    [
        ("mnli", {"MNLI-m.tsv": [0, 2], "MNLI-mm.tsv": [1], "AX.tsv": [2]}, ["0\tentailment", "1\tcontradiction"]),
        ("qnli", {"QNLI.tsv": [1]}, ["0\tnot_entailment"]),
        ("wnli", {"WNLI.tsv": [0, 1]}, ["0\t0", "1\t1"]),
        ("stsb", {"STS-B.tsv": [3.14159, -0.2, 5.7]}, ["0\t3.142", "1\t0.000", "2\t5.000"]),
    ],
)
def test_the_files_for_the_test_server(tmp_path, name, answers, lines):
    """Their names and form, as gluebenchmark.com asks for them."""
    files = task(name).submission(task(name).load(write(tmp_path, name), tmp_path), answers)
    assert list(files) == list(answers)
    assert next(iter(files.values())) == "\n".join(["index\tprediction", *lines]) + "\n"


def test_every_file_of_a_submission_has_a_task():
    files = {found.file for name, row in glue.TABLE.items() for found in sets_of(name, row.folder)}
    wanted = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX")
    assert files == {f"{name}.tsv" for name in wanted}


def test_the_hub_s_test_sets(monkeypatch, tmp_path):
    import datasets

    rows = datasets.Dataset.from_dict({"premise": ["A"], "hypothesis": ["C"], "label": [2], "idx": [0]})
    parts = dict.fromkeys(("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"), rows)
    monkeypatch.setattr(glue, "_check_hub", lambda name: None)
    monkeypatch.setattr(datasets, "load_dataset", lambda path, name: datasets.DatasetDict({"test": rows} if name == "ax" else parts))
    assert list(task("mnli").load(evaluation(submission=True), tmp_path).unlabelled) == ["MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"]


@pytest.mark.parametrize(("name", "examples"), [("mrpc", 1725), ("stsb", 1379)])
def test_real_test_sets(shared_data, tmp_path, name, examples):
    data = task(name).load(evaluation(data_dir=str(shared_data), submission=True), tmp_path)
    (found,) = data.unlabelled.values()
    assert len(found) == examples and all(example.label == 0 for example in found)
