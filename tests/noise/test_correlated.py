"""Streams of correlated noise: what is released is C x + z, and what is made of it has the covariance of C^-1 z."""

import pickle

import numpy as np
import pytest

from tacit.errors import InvalidInput, TrainingMisuse
from tacit.mechanisms import ToeplitzStrategy, TreeStrategy
from tacit.noise.correlated import CorrelatedNoise
from tacit.noise.strategy import banded, buffered, prefix_error, square_root, strategy_of, tree_error

N = 32
STRATEGIES = {
    "banded": banded(N, 5),
    "two": banded(N, 2, normalised=False),
    "identity": banded(N, 1),
    "square_root": square_root(N),
    "buffered": buffered(N, 3),
    "tree": TreeStrategy(N),
}


def streamed(strategy, values):
    """Rows of C x for all steps, in order of release, and the estimates without noise."""
    noise, rows, estimates = CorrelatedNoise.of(strategy), [], []
    for x in values:
        encoded = noise.encode(x)
        rows.append(encoded.reshape(-1, values.shape[1]))
        estimates.append(noise.decode(encoded))
    return np.concatenate(rows), np.array(estimates)


def dense(strategy):
    return streamed(strategy, np.eye(strategy.iterations))[0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_estimates_without_noise_are_the_sums(name):
    values = np.random.default_rng(0).normal(size=(N, 3))
    assert streamed(STRATEGIES[name], values)[1] == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("name", STRATEGIES)
def test_rows_are_those_of_the_matrix_that_is_accounted_for(name):
    strategy = STRATEGIES[name]
    columns = dense(strategy)
    assert np.linalg.norm(columns, axis=0).max() <= strategy.sensitivity() + 1e-12
    if isinstance(strategy, ToeplitzStrategy):
        entries = sum(c * np.eye(N, k=-k) for k, c in enumerate(strategy.coefficients)) / strategy.scales
        assert columns == pytest.approx(entries, abs=1e-12)
        return
    # A node for each block of 2^h steps.
    assert len(columns) == sum(N >> height for height in range(strategy.levels))
    assert set(np.unique(columns)) == {0.0, 1.0}


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_row_depends_on_later_steps(name):
    """A row of step t must be known at step t: x may follow earlier releases."""
    noise = CorrelatedNoise.of(STRATEGIES[name])
    ends = np.cumsum([len(noise.encode(np.zeros(1))) for _ in range(N)])
    columns = dense(STRATEGIES[name])
    for step, end in enumerate(ends[:-1]):
        assert not columns[:end, step + 1 :].any()


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(("times", "apart"), [(1, N), (3, 5), (4, 8), (2, 16)])
def test_sensitivity_bounds_every_pattern_of_separated_steps(name, times, apart):
    strategy, columns = STRATEGIES[name], dense(STRATEGIES[name])
    if strategy.bands > apart and isinstance(strategy, ToeplitzStrategy) and strategy.normalised:
        with pytest.raises(InvalidInput):
            strategy.sensitivity(participations=times, separation=apart)
        return
    bound = strategy.sensitivity(participations=times, separation=apart)
    patterns = [range(start, min(start + times * apart, N), apart) for start in range(N)]
    draw = np.random.default_rng(1)
    for _ in range(200):
        gaps = apart + draw.integers(0, 4, times)
        steps = np.cumsum(gaps) - gaps[0] + draw.integers(0, N)
        patterns.append([step for step in steps if step < N])
    for pattern in patterns:
        assert np.linalg.norm(columns[:, list(pattern)].sum(1)) <= bound + 1e-9


@pytest.mark.parametrize("name", STRATEGIES)
def test_noise_on_estimates_has_the_stated_spread_and_covariance(name):
    """40,000 columns: each of 32^2 entries deviates by more than 6 standard errors with probability 2e-6 in sum."""
    strategy, draws = STRATEGIES[name], 40_000
    noise, draw, found = CorrelatedNoise.of(strategy), np.random.default_rng(3), []
    spreads = []
    for _ in range(N):
        rows = noise.encode(np.zeros(draws))
        found.append(noise.decode(draw.normal(size=rows.shape)))
        spreads.append(noise.spread)
    found = np.array(found)
    assert np.array(spreads) == pytest.approx(strategy.row_norms())
    assert np.abs(found.std(axis=1) / spreads - 1).max() < 6 / np.sqrt(2 * draws)
    if isinstance(strategy, ToeplitzStrategy):
        inverse = np.linalg.inv(dense(strategy))
        covariance = inverse @ inverse.T
        error = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / draws)
        assert (np.abs(found @ found.T / draws - covariance) < 6 * error).all()
        expected = prefix_error(strategy)
    else:
        expected = tree_error(N) / strategy.sensitivity()
    prefixes = found.cumsum(axis=0)
    assert np.sqrt((prefixes**2).mean()) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("name", STRATEGIES)
def test_rounding_of_rows_is_within_its_bound(name):
    strategy = STRATEGIES[name]
    values = np.random.default_rng(4).normal(size=(N, 50)) * 10.0 ** np.random.default_rng(5).integers(-3, 4, (N, 1))
    values = values.astype(np.float32).astype(np.float64)
    rows = streamed(strategy, values)[0]
    exact = dense(strategy).astype(np.longdouble) @ values.astype(np.longdouble)
    largest = np.linalg.norm(values, axis=1).max()
    # `dense` itself rounds its entries once.
    bound = CorrelatedNoise.of(strategy).rounding * 1.5 * largest
    assert np.linalg.norm((rows - exact).astype(float), axis=1).max() <= bound


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_restored_stream_goes_on_bit_for_bit(name):
    values = np.random.default_rng(6).normal(size=(N, 4))
    whole = streamed(STRATEGIES[name], values)[1]
    first, second = (CorrelatedNoise.of(STRATEGIES[name]) for _ in range(2))
    for x in values[:13]:
        first.decode(first.encode(x))
    second.restore(first.state())
    rest = np.array([second.decode(second.encode(x)) for x in values[13:]])
    assert np.array_equal(rest, whole[13:])


def test_a_stream_ends_with_its_run_and_cannot_be_saved():
    noise = CorrelatedNoise.of(banded(2, 2))
    for _ in range(2):
        noise.encode(np.zeros(1))
    with pytest.raises(TrainingMisuse, match="must end after the 2 steps"):
        noise.encode(np.zeros(1))
    with pytest.raises(TypeError, match="private gradients"):
        pickle.dumps(noise)
    fresh = CorrelatedNoise.of(banded(2, 2))
    fresh.encode(np.zeros(1))
    with pytest.raises(TrainingMisuse, match="frozen"):
        fresh.encode(np.zeros(2))


@pytest.mark.parametrize("name", ["banded", "banded:", "banded:0", "blt:-1", "tree:2", "bands:8", "banded:1.5", ""])
def test_unknown_noises_are_refused(name):
    with pytest.raises(InvalidInput, match="noise"):
        strategy_of(name, 10)
