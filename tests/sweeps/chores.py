"""Tasks of the tests below; importable, so that worker processes can run them."""

import math
import os
import time
from pathlib import Path

from tacit.errors import InvalidInput


def square(x, folder):
    Path(folder, f"ran-{x}-{time.time_ns()}").touch()
    return {"square": x * x}


def slow(x, folder):
    time.sleep(0.3)
    return square(x, folder)


def releasing(x, folder):
    """Release at once, and go on working until the test lets it end."""
    found = square(x, folder)
    deadline = time.monotonic() + 120
    while not Path(folder, "quick").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def failing(x, folder):
    if not Path(folder, "quick").exists():
        raise InvalidInput("not yet.")
    return square(x, folder)


def unbounded(x):
    return {"square": math.inf, "standing": {"pld": "proven"}}


def refuse(x):
    raise InvalidInput(f"x must be other; got {x}.")


def threads():
    import torch

    return {"threads": torch.get_num_threads(), "process": os.getpid()}


def listing(data_dir):
    return sorted(path.name for path in Path(data_dir).iterdir())
