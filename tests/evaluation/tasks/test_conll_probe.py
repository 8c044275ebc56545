"""Probes on CoNLL columns and on own files: the right column, the sentences that are chosen, one cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm_lab.config import compose
from mlm_lab.errors import UserError
from mlm_lab.evaluation.measures.fine_tuning import FineTuning
from mlm_lab.evaluation.measures.linear_probe import LinearProbe
from mlm_lab.evaluation.metrics import metric_names
from tests.evaluation.protocol import evaluation, task

LINES = "-DOCSTART- -X- -X- O\n\nAnna NNP B-NP B-PER\nis VBZ B-VP O\n\nfilm NN B-NP O\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ner/conll2003").mkdir(parents=True)
    for part in ("train", "valid"):
        (tmp_path / f"ner/conll2003/{part}.txt").write_text(LINES)
    return tmp_path


@pytest.mark.parametrize(
    ("option", "tags", "metrics"),
    [("pos_probe", (("NNP", "VBZ"), ("NN",)), ("accuracy",)), ("ner_probe", (("B-PER", "O"), ("O",)), ("f1", "precision", "recall"))],
)
def test_the_tags_are_those_of_the_column(folder, option, tags, metrics):
    data = task(option).load(evaluation(data_dir=str(folder)), folder)
    assert tuple(example.tags for example in data.dev) == tags
    assert metric_names(task(option), data) == metrics and data.parts.keys() == {""}


def test_a_column_that_is_not_there_is_refused(folder):
    with pytest.raises(UserError, match=r"no such column[\s\S]*line 3[\s\S]*column 5 of 4"):
        task("pos_probe", column=5).load(evaluation(data_dir=str(folder)), folder)
    with pytest.raises(UserError, match="column=1: must be at least 2"):
        task("pos_probe", column=1)


def test_the_fewer_sentences_are_among_the_more(folder):
    sentences = "".join(f"w{i} NN\n\n" for i in range(100))
    (folder / "ner/conll2003/train.txt").write_text(sentences)
    (folder / "ner/conll2003/valid.txt").write_text(sentences)
    few, more = (
        {e.words for e in task("pos_probe", train_sentences=n).load(evaluation(data_dir=str(folder)), folder).train} for n in (20, 50)
    )
    assert few < more and (len(few), len(more)) == (20, 50)


def test_one_cell_whatever_the_seeds(folder):
    assert list(task("ner_probe").seeds(evaluation(seeds=5), 7)) == [0] and not task("ner_probe").reads_heads


def test_the_most_frequent_tag_of_a_word_stands_beside_it(folder):
    baseline = task("pos_probe").baselines(task("pos_probe").load(evaluation(data_dir=str(folder)), folder))
    assert baseline == {"word_lookup": {"accuracy": 1.0}}


@pytest.mark.parametrize("probe", [False, True])
def test_an_own_file_is_fine_tuned_or_probed(tmp_path, tokenizer, probe):
    (tmp_path / "mine.csv").write_text("text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(60)))
    words = [f"evaluation.files.mine={tmp_path / 'mine.csv'}", "evaluation.tasks=[mine]", f"task.mine.probe={str(probe).lower()}"]
    config = compose(words)
    mine = config.tasks["mine"]
    measure = mine.measure(mine.load(config.evaluation, tmp_path), config.evaluation, tokenizer, 32)
    assert type(measure) is (LinearProbe if probe else FineTuning)
    assert len(mine.seeds(config.evaluation, 0)) == (1 if probe else config.evaluation.seeds)


def test_a_value_cannot_be_probed():
    with pytest.raises(UserError, match="probe=True: must be false with regression"):
        task("own", probe=True, regression=True)


def test_real_parts_of_speech(shared_data):
    data = task("pos_probe").load(evaluation(data_dir=str(shared_data)), shared_data)
    assert (len(data.train), len(data.dev)) == (2000, 3250) and {"NNP", "VBZ", "IN"} < set(data.label_names)
    assert 0.75 < task("pos_probe").baselines(data)["word_lookup"]["accuracy"] < 0.95
