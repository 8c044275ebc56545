"""What W&B's run is told at the end of a run of ours. (With the real client: tests/sweeps.)"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlm_lab.errors import Interrupted
from mlm_lab.run_folder import RunFolder
from mlm_lab.training.logging import CsvLogger, WandbLogger, headline, tables

SUMMARY = {
    "status": "finished",
    "steps": 10,
    "tokens": 1000,
    "seconds": None,
    "flops": {"total": 2e9, "head": 1e9},
    "parameters": {"total": 5, "encoder": 3},
    "metrics": {"val/loss": 4.0, "probe/mlm_15_loss": 4.5, "plateau_left_step": None},
    "evaluation": {"cola": {"matthews": {"n": 2, "mean": 0.1, "floor": {"mean": 0.0}}}, "rte": {"accuracy": {"n": 0, "mean": None}}},
}
TOLD = {
    "val/loss": 4.0,
    "probe/mlm_15_loss": 4.5,
    "cola/matthews": 0.1,
    "steps": 10,
    "tokens": 1000,
    "flops": 2e9,
    "flops_head": 1e9,
    "parameters": 5,
}


class FakeRun:
    """Stands for a WandbRun."""

    current: FakeRun | None = None

    def __init__(self) -> None:
        self.summary: dict = {}
        self.tables: dict = {}
        self.exit_code: int | None = None

    def log_tables(self, tables: dict) -> None:
        self.tables |= tables

    def close(self, summary: dict, exit_code: int) -> None:
        self.summary, self.exit_code = summary, exit_code
        FakeRun.current = None


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    """The run of W&B that this process has open."""
    monkeypatch.setitem(sys.modules, "mlm_lab.training.wandb_run", SimpleNamespace(WandbRun=FakeRun))
    FakeRun.current = FakeRun()
    return FakeRun.current


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> WandbLogger:
    monkeypatch.delenv("WANDB_SWEEP_ID", raising=False)
    return WandbLogger(project="p", entity=None, group=None, offline=None)


def test_the_names_are_those_of_sweeps_and_reports() -> None:
    assert headline(SUMMARY) == TOLD
    assert headline({}) == {}


def test_the_summary_has_what_evaluation_found_after_training(logger: WandbLogger, run: FakeRun, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with logger.recording(folder, {}):
        folder.update_summary(**SUMMARY)
    assert run.summary == TOLD and run.exit_code == 0


def test_the_tables_have_what_the_screen_showed(logger: WandbLogger, run: FakeRun, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with logger.recording(folder, {}):
        folder.update_summary(**SUMMARY, fill_mask=[{"text": "a [MASK] b", "gold": "x", "answers": ["x", "y"]}])
    assert run.tables["fill_mask"][1] == [["a [MASK] b", "x", "x | y"]]
    assert run.tables["downstream"][1][0] == ["cola", "matthews", 2, 0.1, None, None, 0.0]
    assert run.tables["held_out"][1] == [["val/loss", 4.0], ["probe/mlm_15_loss", 4.5]]
    assert tables({}) == {}


def test_a_run_that_was_stopped_is_closed_with_its_exit_code(logger: WandbLogger, run: FakeRun, tmp_path: Path) -> None:
    with pytest.raises(Interrupted), logger.recording(RunFolder(tmp_path), {}):
        raise Interrupted(143)
    assert run.exit_code == 143 and run.summary == {}


@pytest.mark.parametrize(("in_sweep", "something_new", "opened"), [(False, False, 0), (False, True, 1), (True, False, 1)])
def test_a_start_that_trains_nothing_opens_a_run_for_an_agent_or_for_news(
    logger: WandbLogger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_sweep: bool, something_new: bool, opened: int
) -> None:
    runs: list[FakeRun] = []

    def build(*_: object) -> list:
        FakeRun.current = FakeRun()
        runs.append(FakeRun.current)
        return runs

    monkeypatch.setitem(sys.modules, "mlm_lab.training.wandb_run", SimpleNamespace(WandbRun=FakeRun))
    monkeypatch.setattr(FakeRun, "current", None)
    monkeypatch.setattr(WandbLogger, "build", build)
    if in_sweep:
        monkeypatch.setenv("WANDB_SWEEP_ID", "s")
    folder = RunFolder(tmp_path / "run")
    folder.update_summary(**SUMMARY)
    with logger.recording(folder, {}):
        if something_new:
            folder.update_summary(evaluation={"rte": {"accuracy": {"n": 1, "mean": 0.5}}})
    assert len(runs) == opened and all(run.exit_code == 0 and run.summary["val/loss"] == 4.0 for run in runs)


def test_without_wandb_nothing_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with CsvLogger().recording(RunFolder(tmp_path), {}):
        pass
    assert "wandb" not in sys.modules
