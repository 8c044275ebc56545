from __future__ import annotations

import pytest

from mlm_lab.evaluation.baselines import shape_tag
from mlm_lab.evaluation.tasks.pydocs_entities import WORD, Names, PydocsEntities, bare, named
from tests.evaluation.tasks.documentation import FIELDS, documentation, entry

TASK = PydocsEntities(name="pydocs_entities", **FIELDS, train_examples=1000, dev_examples=400)


@pytest.fixture
def names_and_entry():
    load = entry("store.disk", "Load it.", qualname="Shelf.load", kind="function", parameters=("path", "mode"))
    shelf = entry("store.disk", "A shelf.", qualname="Shelf", kind="class")
    write = entry("store.net", "Write it.", qualname="write", kind="function", parameters=("target",))
    others = [entry(f"p{n}.m", "Please write the mode down.", qualname="f", kind="function") for n in range(4)]
    return Names([load, shelf, write, *others]), load


@pytest.mark.parametrize(
    ("word", "tag"),
    [
        ("path", "B-PARAMETER"),  # of the function whose docstring it is
        ("target", "O"),  # a parameter of another function
        ("Shelf", "B-CLASS"),
        ("load", "B-FUNCTION"),
        ("load()", "B-FUNCTION"),
        ("Shelf.load", "B-FUNCTION"),
        ("store.disk.Shelf", "B-CLASS"),
        ("store.disk", "B-MODULE"),
        ("store", "B-MODULE"),
        ("write", "O"),  # a function of the package, but a word that four packages use
        ("mode", "O"),  # likewise a parameter
        ("store.net.write", "B-FUNCTION"),  # written out it can be nothing else
        ("Shelve", "O"),
    ],
)
def test_a_word_is_tagged_where_the_name_exists(names_and_entry, word, tag):
    names, load = names_and_entry
    assert names.tag(word, load) == tag


def test_names_of_another_package_need_their_module(names_and_entry):
    names, _ = names_and_entry
    elsewhere = entry("p0.m", "Load it.", qualname="g", kind="function")
    assert names.tag("Shelf", elsewhere) == "O"
    assert names.tag("store.disk.Shelf", elsewhere) == "B-CLASS"


def test_a_package_is_a_module_elsewhere_though_it_defines_its_own_name():
    pprint = entry("pprint", "Print it.", qualname="pprint", kind="function")
    elsewhere = entry("p0.m", "Load it.", qualname="g", kind="function")
    names = Names([pprint, elsewhere])
    assert names.tag("pprint", pprint) == "B-FUNCTION"
    assert names.tag("pprint", elsewhere) == "B-MODULE"
    assert names.tag("pprint.pprint", elsewhere) == "B-FUNCTION"


def test_words_keep_dots_and_brackets_of_names():
    assert WORD.findall("See os.path.join() (or f(x)), e.g. 3 times.") == [
        *("See", "os.path.join()", "(", "or", "f", "(", "x", ")", ")", ",", "e.g", ".", "3", "times", ".")
    ]


def test_no_dev_name_occurs_in_training_tagged_or_not():
    entries = documentation()
    # held-out modules share a function's name with a training module, and another name stands untagged in one
    entries.append(
        entry("north.part0", "The bale of fetch_1_1() and more of it.", qualname="fetch_1_1", kind="function", split="validation")
    )
    entries.append(entry("south.part1", "The bale is not key_0_0 but more of fetch_1_0 here.", qualname="g", kind="function"))
    data = TASK.build(entries)
    dev_names = {name for example in data.dev for name in named(example)}
    assert {"fetch_1_1", "key_0_0"} <= dev_names
    assert not dev_names & {bare(word) for example in data.train for word in example.words}


def test_every_example_names_something():
    data = TASK.build(documentation())
    assert all(named(example) for part in (data.train, data.dev) for example in part)
    assert {tag for example in data.train for tag in example.tags} <= set(data.label_names)


@pytest.mark.parametrize(
    ("word", "tag"),
    [
        ("run()", "B-FUNCTION"),
        ("os.path.is_file", "B-FUNCTION"),
        ("HeapQueue", "B-CLASS"),
        ("json.JSONDecoder", "B-CLASS"),
        ("json.decoder", "B-MODULE"),
        ("max_length", "B-PARAMETER"),
        ("Return", "O"),
        ("value", "O"),
        ("__", "O"),
    ],
)
def test_the_shape_rule(word, tag):
    assert shape_tag(word) == tag


def test_the_shape_rule_is_the_baseline():
    shelf = entry("north.part0", "The bale of Shelf and more of it.", qualname="Shelf", kind="class", split="validation")
    baselines = TASK.baselines(TASK.build([*documentation(), shelf]))
    assert set(baselines) == {"shape_rule"}
    assert 0.9 < baselines["shape_rule"]["f1"] < 1  # finds fetch_0_1() and key_0_1, not Shelf
