"""The gate: what the folders of the extreme arms' runs say of the plateau."""

from __future__ import annotations

import pytest

from mlm_lab.errors import UserError
from mlm_lab.gate import State, gate
from mlm_lab.run_folder import RunFolder


def folder(path, **fields) -> RunFolder:
    run = RunFolder(path)
    run.update_summary(**fields)
    return run


def test_each_run_says_where_it_is(tmp_path):
    left, stuck = {"left_plateau": True, "plateau_left_step": 40}, {"left_plateau": False, "plateau_left_step": None}
    runs = {
        "left": folder(tmp_path / "a", status="finished", budget_steps=1200, metrics=left),
        "on its way": folder(tmp_path / "b", status="interrupted", budget_steps=1200, metrics=left),
        "stuck": folder(tmp_path / "c", status="finished", budget_steps=1200, metrics=stuck),
        "interrupted": folder(tmp_path / "d", status="interrupted", budget_steps=1200, metrics=stuck),
        "a pair loss": folder(tmp_path / "e", status="finished", budget_steps=1200, metrics={"left_plateau": None}),
        "not begun": RunFolder(tmp_path / "f"),
    }
    found = gate(runs)
    states = [passage.state for passage in found.passages.values()]
    assert states == [State.LEFT, State.LEFT, State.STUCK, State.UNFINISHED, State.UNWATCHED, State.UNFINISHED]
    assert found.lines()[0] == "left: left the plateau by step 40 of 1,200" and found.lines()[2] == "stuck: still on the plateau"
    assert not (tmp_path / "f").exists()
    for names, is_open in ((["left", "a pair loss"], True), (["left", "stuck"], False), (["left", "not begun"], False)):
        assert gate({name: runs[name] for name in names}).is_open is is_open


def test_a_damaged_run_is_named(tmp_path):
    run = folder(tmp_path / "a", status="finished")
    run.summary_json.write_text("{")
    with pytest.raises(UserError, match="damaged"):
        gate({"arm": run})
