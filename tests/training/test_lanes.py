"""The private step in every lane, {eager, recorded, compiled} x {1, 2 threads}: its noise, and records that are NaN.

Noise multiplier 0.7, clip 2.5, expected batch 37, so that no two factors can be confused. The monitor raises a false
alarm with probability below 1e-6.
"""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD

from tacit.audit import NoiseMonitor
from tacit.errors import InvalidInput
from tacit.gradients import clipped_sum
from tacit.noise import SecureStream, SeededStream
from tacit.training import private_step
from tests.training.cases import flat, squared_error

SETTINGS = {"clip_norm": 2.5, "noise_multiplier": 0.7, "expected_batch_size": 37}
STEPS = 20


def wide_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 60), nn.Tanh(), nn.Linear(60, 5))


def batch(count=30):
    draw = torch.Generator().manual_seed(1)
    return torch.randn(count, 40, generator=draw), torch.randn(count, 5, generator=draw)


def step_of(model, lane, stream, **changes):
    optimizer = SGD(model.parameters(), lr=1.0)
    return private_step(model, optimizer, squared_error, engine=lane.engine, stream=stream, **(SETTINGS | changes))


def clipped_mean(model, x, y):
    sums, _ = clipped_sum(model, squared_error, x, y, clip_norm=2.5)
    return torch.cat([value.flatten() for value in sums.values()]) / 37


@pytest.mark.slow
@pytest.mark.parametrize("physical", [None, 16])
def test_noise_has_the_size_and_law_of_the_plan_in_every_lane(lane, physical):
    """As applied, not as drawn: what the weights moved by, less the clipped mean."""
    if lane.engine == "compiled" and physical:
        pytest.skip("compiling it takes seconds; the recorded lane runs the same graph")
    model, (x, y) = wide_model(), batch()
    step, monitor = step_of(model, lane, SeededStream(5), max_physical_batch_size=physical), NoiseMonitor()
    for _ in range(STEPS):
        mean, before = clipped_mean(model, x, y), flat(model)
        step(x, y)
        monitor.add(((before - flat(model) - mean).double() * 37 / (0.7 * 2.5)).numpy())
    assert monitor.count > 50_000
    assert monitor.passed


@pytest.mark.slow_cases
def test_noise_is_fresh_in_every_lane(lane):
    model, (x, y) = wide_model(), batch()
    step = step_of(model, lane, SecureStream())
    moved = []
    for _ in range(2):
        mean, before = clipped_mean(model, x, y), flat(model)
        step(x, y)
        moved.append((before - flat(model) - mean).double().numpy())
    assert abs(np.corrcoef(*moved)[0, 1]) < 0.15


BAD = (math.nan, math.inf, -math.inf, 1e30)


@pytest.mark.slow_cases
def test_a_bad_record_contributes_no_more_than_any_other_in_every_lane(lane):
    """Weights stay finite, and without noise to speak of the release differs by one clipping bound at most."""
    x, y = batch()
    model = wide_model()
    step, start = step_of(model, lane, SeededStream(2), noise_multiplier=1e-9), copy.deepcopy(model.state_dict())

    def moved(records):
        """What one step from the same weights moves; a second one must leave them finite."""
        model.load_state_dict(start)
        before = flat(model)
        step(records, y)
        first = flat(model) - before
        step(records, y)
        assert torch.isfinite(flat(model)).all()
        return first

    plain = moved(x)
    for value in BAD:
        bad = moved(x.clone().index_put_((torch.tensor(3), torch.tensor(1)), torch.tensor(value)))
        # The record is replaced: its old contribution goes and a new one comes, each of at most one bound.
        assert float((plain - bad).norm()) <= 2 * 2.5 / 37 * (1 + 1e-4), value


def test_a_graph_has_a_size_that_is_given():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InvalidInput, match="max_physical_batch_size must be a number with the recorded engine"):
        private_step(
            model,
            optimizer,
            squared_error,
            clip_norm=1.0,
            noise_multiplier=1.0,
            expected_batch_size=4,
            engine="recorded",
            max_physical_batch_size="auto",
        )
