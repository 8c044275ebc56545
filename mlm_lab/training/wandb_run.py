"""W&B beside a run and never in its way: a thread of its own opens W&B's run, hands it rows, tables and artifacts, closes it.

log_metrics ── queue ──> thread: wandb.init (online; where that fails, offline) -> run.log, ... -> summary -> finish
                         what could not be sent is told, with the command that sends it later
"""

from __future__ import annotations

import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger

from mlm_lab import console

LOOK_SECONDS, INIT_SECONDS, FINISH_SECONDS = 15.0, 60.0, 60.0
"""How long W&B's server may take to answer at all, to take up a run, and to take the rest of it at the end."""
GRACE_SECONDS = 30.0
"""For W&B's own process to keep to that."""
STEP = "trainer/global_step"
_END = None


class WandbRun(Logger):
    """Lightning's logger for one run of W&B. Nothing of it waits for W&B but `close`, which does so for FINISH_SECONDS."""

    current: WandbRun | None = None
    """The one that this process has open."""

    def __init__(self, folder: Path, online: bool, **settings: Any):
        """folder: where W&B keeps its files. settings: of wandb.init."""
        super().__init__()
        self._folder, self._online, self._settings = folder, online, settings
        self._calls: queue.SimpleQueue[Callable[[Any], object] | None] = queue.SimpleQueue()
        self._end: tuple[Mapping[str, Any], int] = ({}, 0)
        self._place = folder / "wandb"
        self._thread = threading.Thread(target=self._serve, name="wandb", daemon=True)
        self._thread.start()
        WandbRun.current = self

    @property
    def name(self) -> str | None:
        return self._settings.get("project")

    @property
    def version(self) -> str | None:
        return self._settings.get("id")

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        row = {**metrics, STEP: step}
        self._calls.put(lambda run: run.log(row))

    def log_tables(self, tables: Mapping[str, tuple[list[str], list[list[Any]]]]) -> None:
        """tables: name -> columns and rows."""
        self._calls.put(lambda run: run.log({name: _table(*table) for name, table in tables.items()}))

    def log_artifact(self, name: str, model: Path) -> None:
        """The files of an exported model's folder."""
        self._calls.put(lambda run: run.log_artifact(_artifact(name, model)))

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """The config went with `settings`."""

    def close(self, summary: Mapping[str, Any], exit_code: int) -> None:
        """Tell W&B's run what it came to, and end it."""
        self._end = (summary, exit_code)
        self._calls.put(_END)
        self._thread.join(INIT_SECONDS * self._online + FINISH_SECONDS + GRACE_SECONDS)
        if self._thread.is_alive():
            self._tell("W&B does not answer")
        WandbRun.current = None

    def _serve(self) -> None:
        try:
            run = self._open()
        except Exception as error:
            console.warn(f"W&B cannot record this run ({_first_line(error)}); metrics.csv has all of it")
            return
        self._place = Path(run.dir).parent
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP, step_sync=True)
        while (call := self._calls.get()) is not _END:
            try:
                call(run)
            except Exception as error:
                console.warn(f"W&B does not take a part of this run ({_first_line(error)})")
        summary, exit_code = self._end
        run.summary.update(summary)
        try:
            run.finish(exit_code=exit_code)
        except Exception as error:
            self._tell(f"W&B has not taken all of the run ({_first_line(error)})")

    def _open(self) -> Any:
        import wandb

        settings = wandb.Settings(init_timeout=INIT_SECONDS, finish_timeout=FINISH_SECONDS, finish_timeout_raises=True)
        common = {"dir": str(self._folder), "settings": settings, **self._settings}
        if not self._online:
            return wandb.init(mode="offline", **common)
        try:
            _look_for(settings.base_url)
            return wandb.init(resume=None if self.version is None else "allow", **common)
        except Exception as error:
            wandb.teardown()  # what has failed would keep the run's id to itself
            run = wandb.init(mode="offline", **common)
            self._place = Path(run.dir).parent
            self._tell(f"W&B cannot be reached ({_first_line(error)}): the run is recorded offline")
            return run

    def _tell(self, what: str) -> None:
        console.warn(f"{what}; to send it: wandb sync {self._place}")


def _look_for(address: str) -> None:
    """Raises OSError where no server answers; W&B's own client would try for minutes."""
    with suppress(urllib.error.HTTPError):  # an answer too
        urllib.request.urlopen(address, timeout=LOOK_SECONDS).close()


def _table(columns: list[str], rows: list[list[Any]]) -> Any:
    import wandb

    return wandb.Table(columns=columns, data=rows, allow_mixed_types=True)


def _artifact(name: str, model: Path) -> Any:
    import wandb

    artifact = wandb.Artifact(name, type="model")
    artifact.add_dir(str(model))
    return artifact


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
