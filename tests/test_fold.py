"""Help texts at the width of a terminal: aligned, within it, and whole in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from mlm_lab.fold import fold
from mlm_lab.help import USAGE, overview
from tests.conftest import REPOSITORY

ENTRY = "  --name VALUE   a description of eight words that is long"


def test_what_does_not_fit_goes_on_below_its_own_column() -> None:
    assert fold(ENTRY, 40).splitlines() == ["  --name VALUE   a description of eight", "                 words that is long"]
    assert fold(ENTRY, len(ENTRY)) == ENTRY


def test_a_description_without_room_beside_its_name_goes_on_at_an_indent() -> None:
    assert fold(ENTRY, 26).splitlines()[0] == "  --name VALUE  a"
    assert all(line.startswith("      ") for line in fold(ENTRY, 26).splitlines()[1:])


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_whole_help_fits_and_loses_no_word(width: int) -> None:
    text = overview([REPOSITORY / "conf"])
    folded = fold(text, width)
    assert folded.split() == text.split()
    assert max(map(len, folded.splitlines())) <= width


def test_a_pipe_gets_whole_lines() -> None:
    assert fold(USAGE, None) == USAGE


def test_a_terminal_gets_its_width() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "50"}
    command = [sys.executable, "-m", "mlm_lab.sweep", "--help"]
    subprocess.run(command, stdout=theirs, env=environment, cwd=REPOSITORY, check=True)
    os.close(theirs)
    with os.fdopen(ours, "rb") as screen:
        lines = screen.read1(65536).decode().splitlines()
    assert len(lines) > 20 and max(map(len, lines)) <= 50
