import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.audit import band
from tacit.audit.bounds import clopper_pearson, dkw, ranks

BOUNDS = [clopper_pearson, dkw, ranks, band]
trials = st.integers(1, 3000)
levels = st.floats(1e-6, 0.5)


@given(trials, st.floats(0, 0.999), levels)
@settings(max_examples=60)
def test_clopper_pearson_solves_the_binomial_equation(n, fraction, alpha):
    k = int(fraction * n)
    upper = float(clopper_pearson(np.array([k]), n, alpha)[0])
    assert binom.cdf(k, n, upper) == pytest.approx(alpha, rel=1e-6)


def test_known_values():
    assert clopper_pearson(np.array([0]), 1000, 0.025)[0] == pytest.approx(1 - 0.025 ** (1 / 1000))
    assert clopper_pearson(np.array([7]), 7, 0.1)[0] == 1.0
    assert dkw(np.array([10]), 100, 0.05)[0] == pytest.approx(0.1 + np.sqrt(np.log(20) / 200))


@given(trials, levels)
@settings(max_examples=40)
@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_grow_with_the_count_and_stay_above_it(bound, n, alpha):
    counts = np.arange(n + 1)
    upper = bound(counts, n, alpha)
    assert np.all(upper >= counts / n)
    assert np.all(np.diff(upper) >= 0)
    assert upper[-1] == 1.0
    assert np.all(upper <= 1.0)
    assert np.all(bound(counts, n, alpha / 2) >= upper)


def test_ranks_are_sharper_in_the_tail_and_band_is_nearly_the_best_of_both():
    counts, n, alpha = np.arange(10_001), 10_000, 0.025
    by_ranks, by_dkw, by_both = ranks(counts, n, alpha), dkw(counts, n, alpha), band(counts, n, alpha)
    assert by_ranks[0] < by_dkw[0] / 10
    assert by_dkw[5000] < by_ranks[5000]
    # Half the failure probability costs the excess over the observed rate at most a quarter.
    best = np.minimum(by_ranks, by_dkw) - counts / n
    assert np.all(by_both - counts / n <= 1.25 * best + 1e-12)


@pytest.mark.parametrize("bound", [dkw, ranks, band])
@pytest.mark.parametrize("size", [12, 250])
def test_simultaneous_bounds_hold_at_every_threshold(bound, size):
    """1000 repeats at level 0.1; false alarm below 1e-6 if the level is kept."""
    draw, alpha, repeats = np.random.default_rng(5), 0.1, 1000
    upper = bound(np.arange(size + 1), size, alpha)
    missed = 0
    for _ in range(repeats):
        # Just below the (i+1)-th smallest of n uniforms the empirical rate is i/n: there the true rate is largest.
        sample = np.sort(draw.uniform(size=size))
        missed += bool(np.any(sample > upper[:-1]))
    assert missed <= binom.isf(1e-6, repeats, alpha)
