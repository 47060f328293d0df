"""Memory that is free goes back to the system."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tacit.gradients.flat_gradient import give_back_free_memory


def _resident() -> int:
    """MB that this process holds."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the C library of Linux has the call")
def test_what_was_freed_below_something_in_use_goes_back() -> None:
    """So many small blocks lie in the heap, whose top the last one holds: freeing them alone returns nothing."""
    blocks = [bytearray(b"x" * 16_000) for _ in range(8_000)]
    last = blocks.pop()
    full = _resident()
    blocks.clear()
    give_back_free_memory()
    assert _resident() <= full - 100
    assert len(last) == 16_000
