"""With the real client, offline: a run's tables, and its export as an artifact, wait in the run folder for `wandb sync`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mlm_lab.export.__main__ import main
from mlm_lab.runner import run
from tests.export.test_export import make_run
from tests.interchange.test_folder import tiny
from tests.sweeps.offline_run import read_records

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow


def artifacts(folder: Path, runs: int) -> dict[str, tuple[str, set[str]]]:
    """Of so many recorded runs of a run folder: name -> type, files. A table is one too. W&B's own process writes its files out a little
    after the client has finished: it is waited for."""
    until = time.monotonic() + 30
    while True:
        files = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
        records = [list(read_records(file)) for file in files]
        if sum(any(record.WhichOneof("record_type") == "exit" for record in of_run) for of_run in records) == runs:
            break
        assert time.monotonic() < until, "W&B has not written its files"
        time.sleep(0.1)
    found = [record.artifact for of_run in records for record in of_run if record.WhichOneof("record_type") == "artifact"]
    return {artifact.name: (artifact.type, {entry.path for entry in artifact.manifest.contents}) for artifact in found}


def test_tables_and_the_export_go_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    for name in ("WANDB_API_KEY", "WANDB_SWEEP_ID"):
        monkeypatch.delenv(name, raising=False)
    summary = run(tiny(tmp_path, "logger=wandb", "model=tiny", "tokenizer.vocab_size=400", "trainer=cpu"))
    folder = tmp_path / "runs" / summary["config_hash"][:12]
    assert {name.rpartition("-")[2] for name in artifacts(folder, runs=1)} == {"held_out", "fill_mask"}
    (held_out,) = folder.glob("wandb/offline-run-*/files/media/table/held_out*.json")
    table = json.loads(held_out.read_text())
    assert table["columns"] == ["metric", "value"] and ["val/loss", summary["metrics"]["val/loss"]] in table["data"]
    assert main([str(folder), str(tmp_path / "out"), "--wandb"]) == 0
    kind, files = artifacts(folder, runs=2)[f"{folder.name}-export"]
    assert kind == "model" and files >= {"model.safetensors", "config.json", "tokenizer.json", "README.md"}


def test_a_run_that_is_none_of_wandbs_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    _, folder = make_run(tmp_path / "runs", "model=tiny")
    assert main([str(folder), str(tmp_path / "out"), "--wandb"]) == 2
    assert "logger=wandb" in capsys.readouterr().err and not (tmp_path / "out").exists()
