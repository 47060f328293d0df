"""The private stopping rule: its law, and that no neighbour moves it by more than epsilon."""

import numpy as np
import pytest

from tacit.errors import InvalidInput, Refused
from tacit.noise import SeededStream
from tacit.tickets import PrivateStop, PublicStop
from tacit.tickets.budget import check_thresholds


def first_stop(excesses, epsilon, stream):
    """Number of the look that stops, or that of all looks."""
    left = iter(excesses)
    rule = PrivateStop(lambda: next(left), epsilon, stream)
    return next((i for i in range(len(excesses)) if rule.on_epoch({})), len(excesses))


def law(excesses, epsilon):
    """P(stop at look i), by integrating over the threshold."""
    scale = 2 / epsilon
    threshold = np.linspace(-40 * scale, 40 * scale, 400_001)
    density = np.exp(-np.abs(threshold) / scale) / (2 * scale)
    step, left, found = threshold[1] - threshold[0], density.copy(), []
    for excess in excesses:
        z = (threshold - excess) / (2 * scale)
        above = np.where(z > 0, np.exp(-np.abs(z)) / 2, 1 - np.exp(-np.abs(z)) / 2)
        found.append(float((left * above).sum() * step))
        left = left * (1 - above)
    return np.array([*found, float(left.sum() * step)])


@pytest.mark.slow
def test_looks_follow_the_stated_law():
    """20,000 runs; each frequency within 5.6 standard deviations: false alarm below 4 * 3e-8."""
    excesses, epsilon, runs, stream = [-3.0, 0.5, 2.0], 1.0, 20_000, SeededStream(1)
    found = np.bincount([first_stop(excesses, epsilon, stream) for _ in range(runs)], minlength=4) / runs
    expected = law(excesses, epsilon)
    assert expected.sum() == pytest.approx(1.0, abs=1e-4)
    assert np.all(np.abs(found - expected) < 5.6 * np.sqrt(expected * (1 - expected) / runs))


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
@pytest.mark.parametrize("moves", [(1, 1, 1, 1), (1, -1, 1, -1), (-1, -1, 1, 1)])
def test_no_neighbour_moves_a_probability_by_more_than_epsilon(epsilon, moves):
    excesses = np.array([-4.0, -1.0, 0.0, 3.0])
    one, other = law(excesses, epsilon), law(excesses + moves, epsilon)
    assert np.max(np.abs(np.log(one / other))) <= epsilon + 1e-3


def test_a_public_accuracy_is_compared_as_it_is():
    rule = PublicStop("test", 0.8)
    assert rule.on_epoch({"test": 0.79}) is None
    assert rule.on_epoch({"test": 0.8}) == "test reached 0.8"
    with pytest.raises(InvalidInput, match="metric must be one of epoch"):
        rule.on_epoch({"epoch": 1.0})
    with pytest.raises(InvalidInput, match="epsilon must be in"):
        PrivateStop(lambda: 0.0, 0.0, SeededStream(0))


def test_a_checkpoint_keeps_the_threshold():
    one, other = (PrivateStop(lambda: 0.0, 1.0, SeededStream(seed)) for seed in (0, 1))
    other.restore(one.state())
    assert other.state() == one.state()


def test_thresholds_without_noise_are_refused(monkeypatch):
    check_thresholds(8.0)
    monkeypatch.setattr(PrivateStop, "state", lambda _: {"threshold": 0.0})
    with pytest.raises(Refused, match="as noisy as their epsilon states"):
        check_thresholds(8.0)
