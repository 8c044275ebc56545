"""Documentation that never was: entries as the pydocs corpus gives them, for the tests of the tasks made from it."""

from __future__ import annotations

import numpy as np

from mlm_lab.data.corpora.pydocs import Entry

FIELDS = {"epochs": None, "steps": None, "learning_rate": None, "batch_size": None, "max_length": None}
"""What a task leaves to the protocol."""

PACKAGES = ("north", "south", "east")
VOCABULARY = [
    f"{first}{second}"
    for first in ("ba", "ke", "li", "mo", "nu", "ra", "si", "to")
    for second in ("dle", "mp", "rn", "st", "x", "zz", "ck", "ft")
]


def entry(
    module: str, *sentences: str, qualname: str = "", kind: str = "module", parameters: tuple[str, ...] = (), split: str = "train"
) -> Entry:
    """An entry with just what the tasks read."""
    return Entry(
        module=module,
        package=module.split(".")[0],
        distribution=module.split(".")[0],
        qualname=qualname,
        kind=kind,
        parameters=parameters,
        sentences=sentences,
        split=split,
    )


def documentation(modules: int = 30, seed: int = 0) -> list[Entry]:
    """Modules of several packages, every fifth held out; each with a function of its own, whose names its sentences use."""
    random = np.random.default_rng(seed)
    share = 1 / (np.arange(len(VOCABULARY)) + 4)
    entries = []
    for number in range(modules):
        for function in range(6):
            name, parameter = f"fetch_{number}_{function}", f"key_{number}_{function}"
            sentences = []
            for mention in (name + "()", parameter, "it"):
                words = random.choice(VOCABULARY, 10, p=share / share.sum())
                sentences.append(f"The {' '.join(words[:6])} of {mention} {' '.join(words[6:])}.")
            split = "validation" if number % 5 == 0 else "train"
            module = f"{PACKAGES[number % len(PACKAGES)]}.part{number}"
            entries.append(entry(module, *sentences, qualname=name, kind="function", parameters=(parameter,), split=split))
    return entries


def sentences_of(entries: list[Entry], split: str) -> set[str]:
    """Every sentence of a split."""
    return {sentence for entry in entries if entry.split == split for sentence in entry.sentences}
