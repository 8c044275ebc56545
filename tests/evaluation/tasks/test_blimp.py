"""BLiMP's files: paradigms, the pairs that are chosen, bad input, and the real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlm_lab.errors import UserError
from tests.evaluation.protocol import evaluation, task


def write(folder: Path, paradigm: str, pairs: list[tuple[str, str]]) -> None:
    (folder / "blimp").mkdir(exist_ok=True)
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": paradigm}) for good, bad in pairs]
    (folder / f"blimp/{paradigm}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for paradigm in ("one", "two"):
        write(tmp_path, paradigm, [(f"good {paradigm} {i}", f"bad {i}" + "!" * i) for i in range(20)])
    return tmp_path


def load(folder: Path, pairs: int | None) -> list:
    return task("blimp", pairs=pairs).load(evaluation(data_dir=str(folder)), folder).dev


def test_so_many_pairs_of_each_paradigm_and_more_hold_the_fewer(folder):
    whole, few, more = load(folder, None), load(folder, 5), load(folder, 9)
    assert [pair.paradigm for pair in whole] == ["one"] * 20 + ["two"] * 20
    assert [pair.paradigm for pair in few] == ["one"] * 5 + ["two"] * 5
    file = folder / "blimp/one.jsonl"
    file.write_text("\n".join(reversed(file.read_text().splitlines())))
    assert set(load(folder, 5)) == set(few), "the file's order chose"
    assert set(few) < set(more) < set(whole) and few == [pair for pair in more if pair in set(few)]


def test_it_has_one_cell_for_each_start_and_reads_the_heads():
    assert list(task("blimp").seeds(evaluation(seeds=5), 7)) == [0] and task("blimp").reads_heads
    assert task("blimp").starts == ("pretrained", "floor")


def test_the_shorter_sentence_as_a_baseline_for_every_rule(folder):
    blimp = task("blimp", pairs=None)
    data = blimp.load(evaluation(data_dir=str(folder)), folder)
    shorter = blimp.baselines(data)["shorter"]
    points = [(len(pair.good) < len(pair.bad)) + 0.5 * (len(pair.good) == len(pair.bad)) for pair in data.dev]
    assert shorter["accuracy"] == shorter["likelihood/accuracy"] == pytest.approx(sum(points) / 40)


@pytest.mark.parametrize("line", ["{", "[]", '{"sentence_good": "a", "UID": "x"}'])
def test_a_line_that_is_no_pair_is_named(folder, line):
    with (folder / "blimp/two.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=r"two\.jsonl, line 21"):
        load(folder, 5)


def test_missing_files_are_refused_before_anything_is_prepared(tmp_path):
    with pytest.raises(UserError, match="no minimal pairs"):
        task("blimp").check(evaluation(data_dir=str(tmp_path)))
    with pytest.raises(UserError, match="pairs=0: must be at least 1"):
        task("blimp", pairs=0)


def test_real_pairs(shared_data):
    pairs = load(shared_data, 100)
    assert len({pair.paradigm for pair in pairs}) == 20 and len(pairs) == 2000
    assert len(load(shared_data, None)) == 20_000


@pytest.mark.parametrize("option", ["blimp", "squad2"])
def test_without_files_and_without_the_hub_the_error_says_what_to_give(option):
    with pytest.raises(UserError, match=rf"task {option}: [\s\S]*evaluation\.data_dir=null[\s\S]*a folder that has {option}/"):
        task(option).check(evaluation())
