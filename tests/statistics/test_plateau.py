"""Runs on the plateau are an endpoint of their own."""

from __future__ import annotations

from mlm_lab.statistics.plateau import only_well, reasons, shares
from mlm_lab.statistics.proportions import proportion

FLAGS = {"a": {0: True, 1: True, 2: True}, "b": {0: True, 1: False, 2: None}, "c": {0: None}}


def test_the_share_is_of_the_runs_of_which_it_is_known():
    assert shares(FLAGS, 0.9) == {"a": proportion(3, 3, 0.9), "b": proportion(1, 2, 0.9), "c": proportion(0, 0, 0.9)}


def test_an_arm_with_a_stuck_run_is_named_with_the_count():
    assert reasons(FLAGS) == {"b": "1 of 2 runs did not leave the plateau"}
    assert reasons({"b": {0: False}}, "collapsed") == {"b": "1 of 1 runs collapsed"}


def test_the_second_table_leaves_out_what_is_known_to_be_stuck():
    scores = {"a": {0: 1.0, 3: 2.0}, "b": {0: 1.0, 1: 2.0, 2: 3.0}, "d": {0: 4.0}}
    assert only_well(scores, FLAGS) == {"a": {0: 1.0, 3: 2.0}, "b": {0: 1.0, 2: 3.0}, "d": {0: 4.0}}
