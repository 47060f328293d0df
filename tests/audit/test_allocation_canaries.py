"""Canaries in k of T steps: scores are the likelihood ratio over all subsets, and monitors know right batches."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from tacit.audit import AllocationLikelihoodRatio, AllocationMonitor
from tacit.audit.canaries import SubsetMean
from tacit.errors import InvalidInput

SIZES = [(1, 1), (4, 1), (5, 2), (5, 4), (6, 3), (6, 6)]


@pytest.mark.parametrize(("steps", "often"), SIZES)
def test_scores_are_the_mean_over_all_subsets_after_every_step(steps, often):
    gains = np.random.default_rng(steps).normal(size=(2 * steps, 3))
    mean, subsets = SubsetMean(steps, often), list(itertools.combinations(range(steps), often))
    for step, gain in enumerate(gains):
        mean.add(gain)
        seen = np.zeros((2, steps, 3))
        seen.reshape(-1, 3)[: step + 1] = gains[: step + 1]
        expected = sum(logsumexp([one[list(s)].sum(0) for s in subsets], axis=0) - np.log(len(subsets)) for one in seen)
        assert mean.total == pytest.approx(expected, abs=1e-12)


def test_scores_stay_finite_over_long_runs():
    ratio = AllocationLikelihoodRatio(0.3, steps=400, participations=150)
    for noise in np.random.default_rng(0).normal(scale=0.3, size=(400, 2)):
        ratio.add(noise + np.array([0.0, 1.0]))
    assert np.isfinite(ratio.total).all()
    assert ratio.total[0] < 0 < ratio.total[1]


@pytest.mark.parametrize("kind", [AllocationMonitor, SubsetMean, AllocationLikelihoodRatio])
def test_more_participations_than_steps_are_refused(kind):
    with pytest.raises(InvalidInput, match="participations must be at most steps = 3; got 4"):
        kind(*([] if kind is SubsetMean else [100]), steps=3, participations=4)


def batches(kind, steps, often, records=2000, passes=1, seed=0):
    """Batches of so many passes, right or wrong."""
    draw = np.random.default_rng(seed)
    for number in range(passes):
        if number == 0 or kind != "the same steps in every pass":
            inside = draw.random((records, steps)).argsort(1) < (2 * often if kind == "twice as often" else often)
        if kind == "poisson":
            inside = draw.random((records, steps)) < often / steps
        if kind == "steps in a row":
            inside = (np.arange(steps) - draw.integers(steps, size=(records, 1))) % steps < often
        if kind == "one record always":
            inside[0] = True
        if kind == "fewer in the first step":
            inside[:300] = inside[:300][:, ::-1].copy()
            inside[300:, :2] = np.where(inside[300:, :1] & ~inside[300:, 1:2], False, inside[300:, :2])
        yield from (np.flatnonzero(inside[:, step]) for step in range(steps))


@pytest.mark.parametrize(("steps", "often", "passes"), [(10, 1, 4), (40, 8, 1), (5, 5, 2), (1, 1, 3)])
def test_right_batches_pass(steps, often, passes):
    """Twenty runs, each of false alarm 1e-6 at most; the last one ends within a pass."""
    for seed in range(20):
        monitor, drawn = AllocationMonitor(2000, steps, often), list(batches("right", steps, often, 2000, passes, seed))
        for batch in drawn[: len(drawn) - (seed == 19)]:
            monitor.add(batch)
        assert monitor.passed


@pytest.mark.parametrize(
    ("kind", "steps", "often", "passes"),
    [
        ("twice as often", 10, 1, 1),
        ("twice as often", 40, 8, 1),
        ("poisson", 10, 1, 1),
        ("poisson", 40, 8, 1),
        ("one record always", 10, 1, 1),
        ("one record always", 40, 8, 1),
        ("steps in a row", 40, 8, 1),
        ("the same steps in every pass", 10, 1, 2),
        ("fewer in the first step", 40, 8, 1),
    ],
)
def test_wrong_batches_raise_the_alarm(kind, steps, often, passes):
    monitor = AllocationMonitor(2000, steps, often)
    for batch in batches(kind, steps, often, passes=passes):
        monitor.add(batch)
    assert not monitor.passed


def test_the_false_alarm_rate_is_that_of_the_p_values():
    """P-values of 400 right runs: at most a share a of them is below a, up to 4 standard errors."""
    values = []
    for seed in range(400):
        monitor = AllocationMonitor(200, 6, 2)
        for batch in batches("right", 6, 2, 200, seed=seed):
            monitor.add(batch)
        values.append(monitor.p_value)
    for share in (0.05, 0.2, 0.5):
        assert np.mean(np.array(values) < share) <= share + 4 * (share * (1 - share) / 400) ** 0.5
