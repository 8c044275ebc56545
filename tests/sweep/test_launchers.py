"""Hydra's own launchers, for those who have a cluster and want each point to be a job of it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweep.test_door import SMALL, TEXT

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="needs the extra slurm")
def test_submitit_runs_each_point_as_a_job_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    words = ["-m", "hydra/launcher=submitit_local", *SMALL, "seed=0,1", "study=jobs"]
    run = subprocess.run([sys.executable, "-m", "mlm_lab", *words], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "runs/multirun/" in run.stdout, "where their output is"
    found = [json.loads(path.read_text()) for path in Path("runs").glob("*/summary.json")]
    assert sorted((summary["status"], summary["seeds"]["init"]) for summary in found) == [("finished", 0), ("finished", 1)]
    assert len(list(Path("runs/multirun").glob("*/.submitit/*/*_log.out"))) == 2
    assert not Path("outputs").exists() and not Path("multirun").exists(), "Hydra leaves nothing elsewhere"


def test_the_help_shows_the_cluster() -> None:
    shown = subprocess.run([sys.executable, "-m", "mlm_lab", "--help"], capture_output=True, text=True, cwd=REPOSITORY)
    assert "hydra/launcher=submitit_slurm" in shown.stdout and "python -m mlm_lab.sweep " in shown.stdout
