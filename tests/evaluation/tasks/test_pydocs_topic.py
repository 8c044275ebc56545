from __future__ import annotations

from mlm_lab.evaluation.tasks.pydocs_topic import PydocsTopic, mask_names
from tests.evaluation.tasks.documentation import FIELDS, PACKAGES, documentation, entry

TASK = PydocsTopic(name="pydocs_topic", **FIELDS, train_examples=60, dev_examples=30, packages=3)


def test_names_are_masked():
    text = "A Tensor of torchscript, x.y, snake_case, NumPy and float32. Torch is here; Plain words stay"
    assert mask_names(text, {"Tensor"}, ["torch", "numpy"]) == "A _ of _ , _ , _ , _ and _ . _ is here ; Plain words stay"


def test_a_docstring_is_cut_at_sixty_words():
    assert len(mask_names("word " * 100, set(), []).split()) == 60


def test_the_classes_are_the_packages_with_most_documentation():
    entries = documentation()
    assert TASK.build(entries).label_names == tuple(sorted(PACKAGES))
    few = PydocsTopic(name="pydocs_topic", **FIELDS, train_examples=60, dev_examples=30, packages=2)
    entries = [e for e in entries if e.package != "east" or e.qualname.endswith("_0")]
    assert few.build(entries).label_names == ("north", "south")


def test_a_package_that_is_held_out_whole_is_no_class():
    sentence = "The sentence number {} of this package is a long one about {} things."
    entries = documentation() + [entry("west.a", sentence.format(n, "ab"[n % 2] * n), split="validation") for n in range(60)]
    assert (
        "west" not in PydocsTopic(name="pydocs_topic", **FIELDS, train_examples=60, dev_examples=30, packages=4).build(entries).label_names
    )


def test_the_label_is_the_package():
    entries = documentation()
    data = TASK.build(entries)
    package = {mask_names(" ".join(e.sentences), set(), PACKAGES): e.package for e in entries}
    assert all(data.label_names[example.label] == package[example.text_a] for example in (*data.train, *data.dev))


def test_a_dev_docstring_that_stands_in_a_training_module_is_left_out():
    entries = documentation()
    twins = [entry("north.part5", *e.sentences, split="validation") for e in entries if e.split == "train"]
    data = TASK.build([*entries, *twins])
    trained_on = {mask_names(" ".join(e.sentences), set(), PACKAGES) for e in entries if e.split == "train"}
    assert data.dev and not trained_on & {example.text_a for example in data.dev}
