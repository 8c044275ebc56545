"""GLUE's test sets, whose labels its server keeps, and the files that it takes (gluebenchmark.com): one a task, `index<TAB>prediction`.

    data_dir/glue/NAME/test.tsv             -> NAME.tsv
    data_dir/glue/MNLI/test_matched.tsv     -> MNLI-m.tsv
    data_dir/glue/MNLI/test_mismatched.tsv  -> MNLI-mm.tsv
    data_dir/glue/diagnostic/diagnostic.tsv -> AX.tsv, predicted by the encoder that was fine-tuned on MNLI

Classes are written as the training files write them, similarities as numbers from 0 to 5. The index is the row's, from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TestSet(NamedTuple):
    """A test set without labels."""

    __test__ = False  # for pytest, which takes the name for one of its own

    file: str
    """What the server calls its predictions."""
    folder: str
    """Under data_dir/glue/."""
    stem: str
    hub: tuple[str, str]
    """Config and split of the hub's copy."""


_OF_MNLI = (
    TestSet("MNLI-m.tsv", "MNLI", "test_matched", ("mnli", "test_matched")),
    TestSet("MNLI-mm.tsv", "MNLI", "test_mismatched", ("mnli", "test_mismatched")),
    TestSet("AX.tsv", "diagnostic", "diagnostic", ("ax", "test")),
)


def sets_of(name: str, folder: str) -> tuple[TestSet, ...]:
    """The test sets of a task. folder: its own under data_dir/glue/."""
    return _OF_MNLI if name == "mnli" else (TestSet(f"{folder}.tsv", folder, "test", (name, "test")),)


def file_text(answers: Sequence[float], labels: Sequence[str]) -> str:
    """The text of a file. labels: the classes' names; () for similarities, which are cut to 0 to 5."""
    written = [labels[answer] for answer in answers] if labels else [f"{min(max(answer, 0.0), 5.0):.3f}" for answer in answers]
    return "".join(["index\tprediction\n", *(f"{index}\t{answer}\n" for index, answer in enumerate(written))])
