"""Canaries under correlated noise: rows are white, and scores are the likelihood ratio over all ways to take part."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from tacit.audit import GroupedLikelihoodRatio, GroupMonitor
from tacit.mechanisms import (
    BallsAndBins,
    CyclicAllocation,
    CyclicPoisson,
    Gaussian,
    MatrixGaussian,
    MinSeparation,
    ToeplitzStrategy,
    TreeStrategy,
)
from tacit.noise.correlated import CorrelatedNoise, Whitening
from tacit.noise.strategy import banded, buffered, square_root

N, NOISE = 6, 0.9
STRATEGIES = {
    "banded": banded(N, 2),
    "buffered": buffered(N, 2),
    "square_root": square_root(N),
    "tree": TreeStrategy(N),
}


def run(strategy):
    return MatrixGaussian(NOISE, strategy)


CASES = {
    "cyclic_poisson": (CyclicPoisson(run(STRATEGIES["banded"]), groups=2, sample_rate=0.3), STRATEGIES["banded"]),
    "cyclic_allocation": (
        CyclicAllocation(run(STRATEGIES["banded"]), groups=2, steps_per_block=2),
        STRATEGIES["banded"],
    ),
    "balls_and_bins": (BallsAndBins(Gaussian(NOISE), steps_per_epoch=3, epochs=2), ToeplitzStrategy(N, (1.0,))),
    **{
        name: (MinSeparation(run(strategy), participations=3, separation=2), strategy)
        for name, strategy in STRATEGIES.items()
    },
}


def estimates(strategy, draws, seed=0):
    """What a run of nothing but noise shows, shape (steps, draws)."""
    noise, draw, found = CorrelatedNoise.of(strategy), np.random.default_rng(seed), []
    for _ in range(strategy.iterations):
        rows = noise.encode(np.zeros(draws))
        found.append(noise.decode(draw.normal(size=rows.shape)))
    return np.stack(found)


def patterns(mechanism, group):
    """(probability, steps) of every way in which a record of `group` takes part."""
    if isinstance(mechanism, MinSeparation):
        return [(1.0, tuple(range(group, N, mechanism.separation)))]
    if isinstance(mechanism, BallsAndBins):
        return [(1 / 3, tuple(range(place, N, 3))) for place in range(3)]
    turns = list(range(group, N, mechanism.groups))
    if isinstance(mechanism, CyclicPoisson):
        rate = mechanism.sample_rate
        ways = itertools.product((False, True), repeat=len(turns))
        return [
            (rate ** sum(way) * (1 - rate) ** (len(way) - sum(way)), tuple(itertools.compress(turns, way)))
            for way in ways
        ]
    # Three turns in blocks of two: the last block may place the record in a turn that never comes.
    blocks = [turns[:2], [turns[2], None]]
    return [(0.25, tuple(t for t in way if t is not None)) for way in itertools.product(*blocks)]


@pytest.mark.parametrize("name", STRATEGIES)
def test_rows_carry_independent_noise_of_one_spread(name):
    """40,000 draws: each of 36 entries deviates by 6 standard errors with probability 7e-8 in sum."""
    shown, whitening = estimates(STRATEGIES[name], 40_000), Whitening(STRATEGIES[name])
    rows = np.stack([whitening.add(step) for step in shown])
    assert np.abs(rows @ rows.T / rows.shape[1] - np.eye(N)).max() < 6 * 2**0.5 / 200


@pytest.mark.parametrize("name", STRATEGIES)
def test_products_with_rows_are_those_of_single_steps(name):
    whitening, rows = Whitening(STRATEGIES[name]), np.random.default_rng(1).normal(size=(N, 4))
    single = np.stack([whitening.add(step) for step in np.eye(N)])
    assert whitening.pulled_back(rows) == pytest.approx(single.T @ rows, abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_scores_are_the_likelihood_ratio_over_all_patterns(name):
    mechanism, strategy = CASES[name]
    shown = NOISE * estimates(strategy, 8, seed=2) + 0.4
    groups = np.arange(8) % 2
    ratio = GroupedLikelihoodRatio(mechanism, strategy, NOISE, lambda: groups)
    for step in shown:
        ratio.add(step)
    whitening = Whitening(strategy)
    rows = np.stack([whitening.add(step) for step in shown])
    fresh = Whitening(strategy)
    single = np.stack([fresh.add(step) for step in np.eye(N)])
    for canary, group in enumerate(groups):
        logs, weights = [], []
        for probability, steps in patterns(mechanism, group):
            mean = single[:, list(steps)].sum(1)
            logs.append((rows[:, canary] @ mean - mean @ mean / 2) / NOISE**2)
            weights.append(probability)
        # Column norms are rounded up by 1e-9.
        assert ratio.total[canary] == pytest.approx(logsumexp(logs, b=weights), abs=1e-8)


def batches(kind, groups=4, records=4000, turns=80, seed=0):
    """(batch, groups of all records) for every turn of a sampling, right or wrong."""
    draw = np.random.default_rng(seed)
    group_of = draw.integers(groups, size=records)
    if kind == "uneven groups":
        group_of[:300] = 0
    places = draw.integers(5, size=(records, turns // groups // 5))
    if kind == "same place in every block":
        places[:] = 0
    for turn in range(turns):
        members = np.flatnonzero(group_of == turn % groups)
        block, place = divmod(turn // groups, 5)
        chosen = places[members, block] == place
        if kind in ("poisson", "twice the rate", "any group"):
            chosen = draw.random(len(members)) < (0.4 if kind == "twice the rate" else 0.2)
        if kind == "any group":
            yield np.flatnonzero(draw.random(records) < 0.2 / groups), group_of
        elif kind == "once more":
            yield np.union1d(members[chosen], members[:1]), group_of
        else:
            yield members[chosen], group_of


@pytest.mark.parametrize("block", [None, 5])
def test_right_batches_pass_the_monitor_of_groups(block):
    """Twenty runs, each of false alarm 1e-6 at most."""
    for seed in range(20):
        monitor = GroupMonitor(4, rate=0.2, block=block)
        for batch, group_of in batches("poisson" if block is None else "allocation", seed=seed):
            monitor.add(batch, group_of)
        assert monitor.passed


@pytest.mark.parametrize(
    ("kind", "block"),
    [
        ("twice the rate", None),
        ("any group", None),
        ("uneven groups", None),
        ("uneven groups", 5),
        ("same place in every block", 5),
        ("once more", 5),
        ("poisson", 5),
        ("allocation", None),
    ],
)
def test_wrong_batches_raise_the_alarm_of_groups(kind, block):
    monitor = GroupMonitor(4, rate=0.2, block=block)
    for batch, group_of in batches(kind):
        monitor.add(batch, group_of)
    assert not monitor.passed
