"""Lanes of the private step: every engine under one and two threads."""

from dataclasses import dataclass

import pytest
import torch


@dataclass(frozen=True)
class Lane:
    """An engine of the private step, and how many threads torch has."""

    engine: str
    threads: int

    def __str__(self):
        return f"{self.engine}-{self.threads}"


LANES = [
    # Compilation takes seconds; the graph is the recorded one, which runs on two threads as well.
    pytest.param(lane, marks=pytest.mark.slow) if lane == Lane("compiled", 2) else lane
    for lane in (Lane(engine, threads) for engine in ("eager", "recorded", "compiled") for threads in (1, 2))
]


@pytest.fixture(params=LANES, ids=str)
def lane(request):
    """Each lane in turn; a test of the private step that takes it runs in all six."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param.threads)
    yield request.param
    torch.set_num_threads(before)
