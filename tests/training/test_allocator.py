"""Blocks of a tensor's size come from the heap, which keeps them when they are freed, not from a mapping of their own."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys
import torch

class Info(ctypes.Structure):  # struct mallinfo2 of malloc.h
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

def mapped():
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Info
    return mallinfo().hblkhd

if sys.argv[1] == "kept":
    from mlm_lab.training.allocator import keep_large_blocks
    keep_large_blocks()
before = mapped()
tensor = torch.ones(4_000_000)  # 16 MB
print(mapped() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_large_blocks_come_from_the_heap() -> None:
    mapped = {how: int(subprocess.check_output([sys.executable, "-c", PROGRAM, how], text=True)) for how in ("kept", "left")}
    assert mapped["kept"] == 0
    assert mapped["left"] >= 16_000_000
