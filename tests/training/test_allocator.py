"""Freed blocks of a tensor's size stay with the process."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
if sys.argv[1] == "kept":
    from mlm_lab.training.allocator import keep_large_blocks
    keep_large_blocks()
torch.ones(4_000_000)  # 16 MB
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(4_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_pages_are_not_asked_for_again() -> None:
    faults = {how: int(subprocess.check_output([sys.executable, "-c", PROGRAM, how], text=True)) for how in ("kept", "left")}
    assert faults["kept"] < faults["left"] / 2
