"""The time of a step, for budgets in hours: measured once, and shared by the runs under one output_dir whose steps cost the same.

OUTPUT_DIR/step_times/KEY.json    {key, seconds}

So the seeds and the learning rates of an arm get the same number of steps, whatever else the machine did when each of them began; measured
for each run anew they were found to differ by a quarter within an arm. results.csv keeps the times, and a sweep that goes on where the
folders are gone goes on with them, unless its output_dir has others.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab import atomic
from mlm_lab.provenance import hardware, versions
from mlm_lab.run_config import store_key, to_dict

if TYPE_CHECKING:
    from mlm_lab.run_config import RunConfig

FOLDER = "step_times"
_COSTS = ("objective", "model", "max_length", "length_phases", "batch_size")
"""Of the config, what a step's time follows from; of the optimiser which one it is, for its rates cost nothing."""
_FREE = ("num_workers", "log_every_steps", "timeout_seconds")
"""Keys of the trainer that no timed step knows of."""
_MACHINE = ("cpu", "cpus", "threads", "gpus")


def key_of(config: RunConfig, world_size: int) -> str:
    """64 hexadecimal digits of what the time of a step follows from: what is computed, from which store, on which kind of machine."""
    values, machine = to_dict(config), hardware()
    about = {name: values[name] for name in _COSTS} | {"optim": values["optim"]["_target_"], "store": store_key(config)}
    about["trainer"] = {name: value for name, value in values["trainer"].items() if name not in _FREE}
    about |= {name: machine.get(name) for name in _MACHINE} | {"world_size": world_size}
    about |= {"torch": versions().get("torch"), "code": getattr(type(config.objective), "code_version", 1)}
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def known(output_dir: Path, key: str) -> float | None:
    """Seconds of a step, if a run under output_dir has measured it. A file that cannot be read, or has no time in it, is none."""
    try:
        seconds = float(json.loads(_file(output_dir, key).read_text(encoding="utf-8"))["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return seconds if 0 < seconds < math.inf else None


def publish(output_dir: Path, key: str, seconds: float) -> float:
    """Leave what a run has measured to those that follow. Returns what counts: of runs that measure at once, the first one's."""
    file = _file(output_dir, key)
    with atomic.locked(file.with_suffix(".lock")):
        first = known(output_dir, key)
        if first is None:
            atomic.write_text(file, json.dumps({"key": key, "seconds": seconds}) + "\n")
    return seconds if first is None else first


def _file(output_dir: Path, key: str) -> Path:
    return output_dir / FOLDER / f"{key[:16]}.json"
