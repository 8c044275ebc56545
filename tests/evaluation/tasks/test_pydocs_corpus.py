"""The pydocs tasks on the documentation that is installed here: what a task gives away, and what it was kept from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlm_lab.data.corpora.pydocs import PyDocs, read_entries
from mlm_lab.evaluation.tasks.pydocs_sentences import form
from tests.evaluation.tasks.documentation import sentences_of
from tests.evaluation.tasks.test_pydocs_sentences import TASKS

pytestmark = pytest.mark.slow

LARGE = {name: replace(task, train_examples=2000, dev_examples=1000) for name, task in TASKS.items()}
LARGE["pydocs_topic"] = replace(LARGE["pydocs_topic"], packages=8)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def entries(cache_dir):
    return read_entries(cache_dir)


@pytest.fixture(scope="module")
def data(entries):
    return {name: task.build(entries) for name, task in LARGE.items()}


def test_modules_that_give_dev_examples_are_not_pretrained_on(cache_dir, entries):
    held_out = {entry.module for entry in entries if entry.split == "validation"}
    pretrained_on = {document.source for document in PyDocs(validation_share=0.05).raw_documents(cache_dir) if document.split == "train"}
    assert len(held_out) > 50 and len(pretrained_on) > 1000
    assert not held_out & pretrained_on


@pytest.mark.parametrize("name", ["pydocs_odd_word", "pydocs_acceptability"])
def test_originals_of_dev_stand_in_no_training_module(name, data, entries):
    train, held_out = sentences_of(entries, "train"), sentences_of(entries, "validation")
    forms = {form(sentence) for sentence in train}
    originals = [example.text_a for example in data[name].dev if example.text_a in held_out]
    assert len(originals) == 500
    assert not [text for text in originals if form(text) in forms]


@pytest.mark.parametrize("name", ["pydocs_odd_word", "pydocs_acceptability"])
def test_neither_words_nor_length_give_the_answer_away(name, data):
    """500 + 500 dev examples: one standard error is 1.6 points."""
    assert len(data[name].train) == 2000 and len(data[name].dev) == 1000
    baselines = LARGE[name].baselines(data[name])
    assert baselines["majority"]["accuracy"] == 0.5
    assert abs(baselines["length"]["accuracy"] - 0.5) < 0.05
    assert 0.45 < baselines["bag_of_words"]["accuracy"] < 0.62


def test_names_are_not_found_by_their_look_alone(data):
    assert len(data["pydocs_entities"].dev) == 1000
    assert 0.2 < LARGE["pydocs_entities"].baselines(data["pydocs_entities"])["shape_rule"]["f1"] < 0.7


def test_topics_are_not_found_by_length(data):
    baselines = LARGE["pydocs_topic"].baselines(data["pydocs_topic"])
    assert len(data["pydocs_topic"].dev) >= 300
    assert baselines["length"]["accuracy"] < baselines["bag_of_words"]["accuracy"] - 0.2
