from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.evaluation.tasks import pydocs_sentences
from mlm_lab.evaluation.tasks.pydocs_acceptability import PydocsAcceptability
from mlm_lab.evaluation.tasks.pydocs_entities import PydocsEntities
from mlm_lab.evaluation.tasks.pydocs_odd_word import PydocsOddWord
from mlm_lab.evaluation.tasks.pydocs_sentences import keyed_generator, sentences_by_split
from mlm_lab.evaluation.tasks.pydocs_topic import PydocsTopic
from tests.evaluation.tasks.documentation import FIELDS, documentation, entry

SMALL = {"train_examples": 60, "dev_examples": 12} | FIELDS
TASKS = {
    "pydocs_odd_word": PydocsOddWord(name="pydocs_odd_word", **SMALL),
    "pydocs_acceptability": PydocsAcceptability(name="pydocs_acceptability", **SMALL),
    "pydocs_entities": PydocsEntities(name="pydocs_entities", **SMALL),
    "pydocs_topic": PydocsTopic(name="pydocs_topic", packages=3, **SMALL),
}
PRINT_ALL = (
    "from tests.evaluation.tasks.test_pydocs_sentences import TASKS, documentation\n"
    "print([(task.build(documentation()).train, task.build(documentation()).dev) for task in TASKS.values()])"
)


def test_a_dev_sentence_that_stands_in_a_training_module_is_left_out():
    entries = [
        entry("north.a", "Read 3 bytes of the file."),
        entry("north.b", "read 12 bytes of the FILE", "Close the file.", split="validation"),
    ]
    train, dev = sentences_by_split(entries, "task")
    assert [sentence.text for sentence in train] == ["Read 3 bytes of the file."]
    assert [sentence.text for sentence in dev] == ["Close the file."]


def test_each_part_comes_from_its_own_modules():
    train, dev = sentences_by_split(documentation(), "task")
    assert {sentence.entry.split for sentence in train} == {"train"}
    assert {sentence.entry.split for sentence in dev} == {"validation"}
    assert not {sentence.entry.module for sentence in train} & {sentence.entry.module for sentence in dev}


def test_the_order_is_the_tasks_own_and_not_that_of_the_entries():
    entries = documentation()
    order = [sentence.text for sentence in sentences_by_split(entries, "task")[0]]
    assert order == [sentence.text for sentence in sentences_by_split(entries[::-1], "task")[0]]
    assert order != [sentence.text for sentence in sentences_by_split(entries, "other")[0]]


def test_draws_depend_on_the_whole_key():
    first = keyed_generator("task", "ab", "c").random(4)
    np.testing.assert_array_equal(first, keyed_generator("task", "ab", "c").random(4))
    assert not np.array_equal(first, keyed_generator("task", "a", "bc").random(4))


@pytest.mark.parametrize("name", TASKS)
def test_no_dev_module_gives_a_training_example(name):
    """A held-out module's sentences have a word of their own: it must turn up in dev and nowhere in training."""
    entries = [
        replace(e, sentences=tuple(s.replace("The ", "The heldout ") for s in e.sentences)) if e.split == "validation" else e
        for e in documentation()
    ]
    data = TASKS[name].build(entries)
    assert data.train and data.dev
    assert all("heldout" not in str(example) for example in data.train)
    assert all("heldout" in str(example) for example in data.dev)


@pytest.mark.parametrize("name", TASKS)
def test_parts_are_no_larger_than_asked_and_share_no_example(name):
    data = TASKS[name].build(documentation())
    assert 0 < len(data.train) <= 60 and 0 < len(data.dev) <= 12
    assert not {example[0] for example in data.train} & {example[0] for example in data.dev}


@pytest.mark.parametrize("name", [name for name in TASKS if name != "pydocs_entities"])
def test_labels_are_balanced(name):
    data = TASKS[name].build(documentation())
    for part in (data.train, data.dev):
        counts = np.bincount([example.label for example in part], minlength=len(data.label_names))
        assert counts.max() - counts.min() <= 1


def test_every_process_makes_the_same_examples():
    root = Path(__file__).parents[3]
    printed = [
        subprocess.run(
            [sys.executable, "-c", PRINT_ALL],
            cwd=root,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(printed[0]) > 1000
    assert printed[0] == printed[1]


def test_documentation_without_examples_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(pydocs_sentences.pydocs, "read_entries", lambda cache_dir: [entry("north.a", "Too short.")])
    with pytest.raises(UserError, match=r"pydocs_odd_word.*gives no examples"):
        TASKS["pydocs_odd_word"].load(None, tmp_path)


def test_sizes_out_of_range_are_refused():
    with pytest.raises(InvalidFields, match=r"train_examples=1.*\n.*dev_examples=0"):
        PydocsOddWord(name="pydocs_odd_word", **FIELDS, train_examples=1, dev_examples=0)
