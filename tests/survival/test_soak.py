"""A long run holds what it held after its first minutes: memory within 3 %, as many open files, as many threads."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.survival.small_run import words, write_inputs

REPOSITORY = Path(__file__).resolve().parents[2]
MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
WARM_UP, PERIOD = 0.2, 5.0
"""Share of the time that is not looked at, while kernels, caches and workers are made; seconds between looks."""


def resident_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.exhaustive
def test_memory_and_open_files_stay(tmp_path):
    write_inputs(tmp_path)
    often = ["validation.every_steps=50", "checkpoint.every_steps=40", "trainer.log_every_steps=5"]
    command = [sys.executable, "-m", "mlm_lab", *words(Path("."), steps=10_000_000), *often]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    with (tmp_path / "said.txt").open("w") as said:
        run = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=said, stderr=subprocess.STDOUT)
        looks: list[tuple[int, int, int]] = []
        until = time.monotonic() + 60 * MINUTES
        while time.monotonic() < until:
            time.sleep(PERIOD)
            assert run.poll() is None, (tmp_path / "said.txt").read_text()
            own = Path(f"/proc/{run.pid}")
            looks.append((resident_bytes(run.pid), len(list((own / "fd").iterdir())), len(list((own / "task").iterdir()))))
        run.send_signal(signal.SIGTERM)
        assert run.wait(120) == 143
    settled = looks[int(WARM_UP * len(looks)) :]
    quarter = max(1, len(settled) // 4)
    first, last = (statistics.median(memory for memory, _, _ in part) for part in (settled[:quarter], settled[-quarter:]))
    steps = (tmp_path / "said.txt").read_text().count("Pretraining:")
    print(
        f"{MINUTES:g} minutes, {steps} lines: memory {first / 2**20:.1f} MiB then {last / 2**20:.1f} MiB ({last / first - 1:+.2%}), "
        f"open files {min(n for _, n, _ in settled)} to {max(n for _, n, _ in settled)}, "
        f"threads {min(n for *_, n in settled)} to {max(n for *_, n in settled)}"
    )
    assert abs(last / first - 1) <= 0.03
    assert statistics.median(n for _, n, _ in settled[:quarter]) == statistics.median(n for _, n, _ in settled[-quarter:])
    assert max(n for _, n, _ in settled) - min(n for _, n, _ in settled) <= 3, "a file that is being written when it is looked at"
