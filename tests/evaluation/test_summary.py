"""Seeds as numbers (traps.md 33, 34): nothing is dropped in silence."""

from __future__ import annotations

import pytest

from mlm_lab.evaluation.summary import describe, flags, note, summarise, table_rows


def cell(value: float | None, collapsed: bool = False) -> dict:
    return {"status": "finished", "metrics": {"accuracy": value}, "collapsed": collapsed}


FAILED = {"status": "failed", "reason": "the training loss was nan"}


def test_a_score_says_within_what_it_is_ranked() -> None:
    assert summarise({0: cell(0.8)}, {}, {}, "fixed", "objective")["accuracy"]["within"] == "objective"
    assert "within" not in summarise({0: cell(0.8)}, {}, {}, "fixed")["accuracy"]


def test_trap_34_every_cell_has_n_mean_deviation_median():
    assert describe([0.5, 0.7, 0.9, 0.5]) == {
        "n": 4,
        "mean": pytest.approx(0.65),
        "std": pytest.approx((0.11 / 3) ** 0.5),  # n - 1
        "median": pytest.approx(0.6),
        "values": [0.5, 0.7, 0.9, 0.5],
    }
    assert describe([0.5])["std"] is None
    assert describe([])["mean"] is None


def test_trap_33_collapsed_seeds_stay_and_are_flagged():
    entry = summarise({0: cell(0.8), 1: cell(0.6, collapsed=True)}, {}, {}, "fixed")
    assert (entry["accuracy"]["n"], entry["accuracy"]["mean"], entry["accuracy"]["collapsed"]) == (2, pytest.approx(0.7), [1])
    assert "seed 1" in flags("mrpc", entry)[0]
    assert "collapsed" in table_rows({"mrpc": entry})[0][2]


def test_trap_33_failed_seeds_are_failures_and_not_numbers():
    entry = summarise({0: cell(0.8), 1: FAILED, 2: cell(0.6)}, {0: FAILED, 1: cell(0.5), 2: cell(0.5)}, {}, "fixed")["accuracy"]
    assert (entry["n"], entry["values"], entry["failed"]) == (2, [0.8, 0.6], [1])
    assert (entry["floor"]["n"], entry["floor"]["failed"]) == (2, [0])
    assert entry["above_floor"] == pytest.approx(0.7 - 0.5)
    assert any("failed with seed 0" in line for line in flags("rte", {"accuracy": entry}))


def test_trap_33_a_task_of_which_every_cell_failed_has_a_row():
    entry = summarise({0: FAILED, 1: FAILED}, {}, {}, "fixed")
    assert table_rows({"rte": entry})[0][:4] == ["rte", "none", "0 (2 failed)", "-"]
    assert "failed with seed 0, 1" in flags("rte", entry)[0]


def test_trap_33_an_undefined_value_is_not_left_out():
    entry = summarise({0: cell(0.8), 1: cell(None, collapsed=True)}, {0: cell(0.1), 1: cell(0.2)}, {}, "fixed")["accuracy"]
    assert (entry["n"], entry["mean"], entry["values"]) == (2, None, [0.8, None])
    assert "undefined" in table_rows({"stsb": {"pearson": entry}})[0]


def test_the_floor_stands_beside_it_with_the_difference_of_the_means():
    pretrained, floor = {0: cell(0.50), 1: cell(0.60)}, {0: cell(0.55), 1: cell(0.65), 2: cell(0.75)}
    entry = summarise(pretrained, floor, {"bag of words": {"accuracy": 0.563}}, "paper")
    assert entry["accuracy"]["above_floor"] == pytest.approx(-0.10)
    assert (entry["accuracy"]["floor"]["n"], entry["accuracy"]["protocol"]) == (3, "paper")
    row = table_rows({"odd": entry})[0]
    assert row[3:] == ["0.550 ± 0.071", "0.550", "0.650 ± 0.100", "-0.100", "bag of words 0.563"]


def test_what_a_protocol_rests_on_stands_under_the_table():
    assert "selected on its reporting set" in note("paper", {})
    assert "selected on a part of train" in note("heldout", {})
