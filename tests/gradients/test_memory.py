"""Memory that is free goes back to the system."""

from __future__ import annotations

import gc
import platform
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tacit.clipping import FlatClip
from tacit.gradients import ClippedSum
from tacit.gradients.flat_gradient import trim_memory


def _losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


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
    trim_memory()
    assert _resident() <= full - 100
    assert len(last) == 16_000


@pytest.mark.usefixtures("without_types")
def test_the_activations_of_a_batch_are_gone_once_it_is_summed() -> None:
    """Nothing that a step holds waits for a collection of circles."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 3))
    clipped = ClippedSum(model, FlatClip(1.0))
    x, y = torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long)
    clipped(_losses, x, y)
    held: list[weakref.ref[torch.Tensor]] = []
    model[0].register_forward_hook(lambda module, inputs, output: held.append(weakref.ref(output)))
    gc.disable()
    try:
        clipped(_losses, x, y)
    finally:
        gc.enable()
    assert held
    assert all(each() is None for each in held)
