"""Rows with independent noise of the estimates of a tree, against the dense Cholesky factor."""

import numpy as np
import pytest
from scipy.linalg import solve_triangular

from tacit.mechanisms import TreeStrategy
from tacit.noise.correlated import CorrelatedNoise, Whitening

SHORT = [*range(1, 34), 47, 64, 100]


def inverse_factor(steps):
    """L^-1, K K^T = L L^T, of estimates x + K z."""
    noise = CorrelatedNoise.of(TreeStrategy(steps))
    counts = [len(noise.encode(np.zeros(1))) for _ in range(steps)]
    every, noise = np.eye(sum(counts)), CorrelatedNoise.of(TreeStrategy(steps))
    estimates, start = [], 0
    for count in counts:
        noise.encode(np.zeros(len(every)))
        estimates.append(noise.decode(every[start : start + count].reshape(-1)))
        start += count
    factor = np.linalg.cholesky(np.stack(estimates) @ np.stack(estimates).T)
    return solve_triangular(factor, np.eye(steps), lower=True)


@pytest.mark.parametrize("steps", SHORT)
def test_rows_of_a_tree_are_those_of_the_dense_factor(steps):
    dense, whitening = inverse_factor(steps), Whitening(TreeStrategy(steps))
    assert np.stack([whitening.add(step) for step in np.eye(steps)]) == pytest.approx(dense, abs=1e-11)
    assert whitening.squared_norms(np.eye(steps)) == pytest.approx(np.square(dense).sum(0))
    rows = np.random.default_rng(steps).normal(size=(steps, 2))
    assert whitening.pulled_back(rows) == pytest.approx(dense.T @ rows, abs=1e-11)


def test_the_norms_of_a_long_tree_are_those_of_its_rows():
    """A step's weight in the row of step t, counted from 1, is that of Lemma 1.7a, at 2^14 steps."""
    steps = 2**14
    impulse = np.zeros((steps, 1))
    impulse[5000] = 1
    found, expected = Whitening(TreeStrategy(steps)).squared_norms(impulse), 0.0
    step = 5001
    while step <= steps:
        lowest = step & -step
        levels, inside = lowest.bit_length(), (step - 5001).bit_length()
        expected += (2**levels - 2**inside) ** 2 * 3 / (4**levels - 1)
        step += lowest
    assert found == pytest.approx([expected])


def test_rows_of_a_long_tree_are_white():
    """65,536 values of 8,192 steps: variance, neighbours in time and steps 4,096 apart, at 6 standard errors each."""
    steps, draw = 2**13, np.random.default_rng(0)
    noise, whitening = CorrelatedNoise.of(TreeStrategy(steps)), Whitening(TreeStrategy(steps))
    found = []
    for _ in range(steps):
        rows = noise.encode(np.zeros(8))
        found.append(whitening.add(noise.decode(draw.normal(size=rows.shape))))
    found = np.stack(found)
    assert abs(np.mean(found**2) - 1) < 6 * (2 / found.size) ** 0.5
    for lag in (1, 2, 4096):
        products = found[lag:] * found[:-lag]
        assert abs(products.mean()) < 6 / products.size**0.5
