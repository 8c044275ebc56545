"""Points whose processes are stub_run.py, and a runner of them; also a program, for tests that kill a runner:

python -m tests.sweep.stubs FOLDER JOBS BEHAVIOUR BEHAVIOUR ...
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from mlm_lab.run_folder import RunFolder
from mlm_lab.sweep.records import COMMON, Records
from mlm_lab.sweep.runner import Job, Listed, Runner

COMMAND = (sys.executable, str(Path(__file__).with_name("stub_run.py")))


@dataclass(frozen=True)
class StubPoint:
    """What the runner needs of a Point."""

    parent: Path
    number: int
    behaviour: str
    tuned: str | None = None

    @property
    def config_hash(self) -> str:
        return f"{self.number:012d}" + "f" * 52

    @property
    def config(self) -> SimpleNamespace:
        return SimpleNamespace(output_dir=self.parent, study="study", stages=("prepare", "pretrain"), tasks={})

    @property
    def folder(self) -> RunFolder:
        return RunFolder.of(self.parent, self.config_hash)

    @property
    def overrides(self) -> tuple[str, ...]:
        return (str(self.folder.path), self.behaviour)

    @property
    def arm(self) -> str:
        return f"arm={self.number}"

    @property
    def seed(self) -> int:
        return 0

    @property
    def values(self) -> dict[str, int]:
        return {"arm": self.number}

    @property
    def starts(self) -> list[str]:
        """A line for each process that worked on it."""
        path = self.folder.path / "starts.txt"
        return path.read_text().splitlines() if path.exists() else []


def points(parent: Path, *behaviours: str) -> list[StubPoint]:
    return [StubPoint(parent, number, behaviour) for number, behaviour in enumerate(behaviours)]


def make_runner(parent: Path, jobs: int, show=lambda jobs: None, finished: dict | None = None) -> Runner:
    return Runner(Records(parent, "study"), finished or {}, jobs, show, COMMAND)


def run(every: list[StubPoint], jobs: int = 2, **settings) -> list[Job]:
    """Run them as a sweep does. Returns the jobs, settled."""
    records = Records(every[0].parent, "study")
    for point in every:
        records.plan(point, COMMON)
    source = Listed([Job(point) for point in every])
    make_runner(every[0].parent, jobs, **settings).run(source)
    return source.jobs


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run(points(Path(sys.argv[1]), *sys.argv[3:]), int(sys.argv[2]), show=lambda jobs: print([job.state for job in jobs], flush=True))
