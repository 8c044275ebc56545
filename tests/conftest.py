"""What every test shares: a run on one thread, no network, and the way to the shared data sets."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# A shell that starts the tests in the background has Ctrl-C ignored, which every process started from here would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """../shared/data beside the repository. Tests that use it are skipped, saying so, where it is missing."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data, which is not on this machine")
    return folder
