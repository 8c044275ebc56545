"""Which code ran on which machine: what a run's summary records so that a result can be traced. Imports nothing heavy."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("mlm_lab", "torch", "lightning", "numpy", "tokenizers", "datasets", "torchmetrics", "transformers")


def provenance() -> dict[str, object]:
    """The fields `versions`, `hardware` and `git_commit` of summary.json."""
    return {"versions": versions(), "hardware": hardware(), "git_commit": git_commit()}


def versions() -> dict[str, str]:
    """Of Python and of what computes, as far as it is installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a bare checkout has no metadata of its own, and transformers is optional
            continue
    return found


def hardware() -> dict[str, object]:
    """The machine, the CPUs and threads that the process may use, and its GPUs."""
    facts: dict[str, object] = {"host": socket.gethostname(), "system": platform.platform(), "cpu": _cpu_name(), "cpus": available_cpus()}
    torch = sys.modules.get("torch")
    if torch is not None:
        facts["threads"] = torch.get_num_threads()
        facts["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return facts


def git_commit() -> str | None:
    """The commit of the checkout that runs, with "-dirty" where files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def available_cpus() -> int:
    """CPUs that this process may use, which may be fewer than the machine has (taskset, containers, batch systems)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
