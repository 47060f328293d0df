"""How many values fit into memory, whether it ran out, and how what is free goes back to the system."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch

# Four bytes, four times as the graph, gradients of activations and temporary results stand beside what a capture holds,
# and half of the memory stays free.
_BYTES_PER_VALUE = 32
# Free bytes where the system does not say.
_ASSUMED = 2**32
_SAID = ("out of memory", "can't allocate memory", "not enough memory")


def held_values(device: torch.device) -> int:
    """Values of per-sample gradients that fit into the memory that is free now."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _available()
    return free // _BYTES_PER_VALUE


def _available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return _ASSUMED
    found = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(next(found, _ASSUMED // 1024)) * 1024


def out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that no memory was left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(said in str(error) for said in _SAID)


def give_back_free_memory() -> None:
    """Return to the system what this process holds and does not use.

    The C library keeps what was freed: after the checks of a first batch, several times what a step needs. Only that of
    Linux has the call; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
