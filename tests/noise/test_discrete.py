"""Exact samplers against the masses of their laws; every chi-square test has a false-alarm rate of 1e-6."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tacit.errors import InvalidInput
from tacit.mechanisms import law_of
from tacit.noise import SeededStream, discrete

_ALARM = 1e-6


def fits(drawn, masses, low):
    """Chi-square of integers against masses of low, low + 1, ...; everything else is one further bin."""
    drawn, masses = np.asarray(drawn), np.asarray(masses)
    counts = np.array([np.count_nonzero(drawn == low + at) for at in range(len(masses))])
    observed, expected = np.append(counts, len(drawn) - counts.sum()), np.append(masses, 1 - masses.sum()) * len(drawn)
    large = expected > 5
    observed = np.append(observed[large], observed[~large].sum())
    expected = np.append(expected[large], expected[~large].sum())
    kept = expected > 0
    return stats.chisquare(observed[kept], expected[kept] * observed[kept].sum() / expected[kept].sum()).pvalue > _ALARM


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(2), Fraction(37, 5)])
def test_discrete_gaussian(variance):
    stream = SeededStream(1)
    drawn = [discrete.discrete_gaussian(stream, variance) for _ in range(4000)]
    support = np.arange(-60, 61)
    masses = np.exp(-(support**2) / (2 * float(variance)))
    assert fits(drawn, masses / masses.sum(), -60)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(3, 2), Fraction(5)])
def test_discrete_laplace(scale):
    stream = SeededStream(2)
    drawn = [discrete.discrete_laplace(stream, scale) for _ in range(4000)]
    support = np.arange(-200, 201)
    masses = np.exp(-np.abs(support) / float(scale))
    assert fits(drawn, masses / masses.sum(), -200)


@pytest.mark.parametrize("exponent", [Fraction(1, 7), Fraction(1), Fraction(8, 3)])
def test_bernoulli_exp(exponent):
    stream = SeededStream(3)
    drawn = [int(discrete.bernoulli_exp(stream, exponent)) for _ in range(4000)]
    share = float(np.exp(-float(exponent)))
    assert fits(drawn, np.array([1 - share, share]), 0)


def permute_and_flip_masses(chances):
    """Exact law by summing over all orders."""
    from itertools import permutations

    masses = np.zeros(len(chances))
    orders = list(permutations(range(len(chances))))
    for order in orders:
        left = 1.0
        for at in order:
            masses[at] += left * chances[at] / len(orders)
            left *= 1 - chances[at]
    return masses


def test_permute_and_flip_has_the_law_summed_over_all_orders():
    stream, scores = SeededStream(4), [3, 5, Fraction(9, 2), 0]
    drawn = [
        discrete.permute_and_flip(stream, scores, epsilon=Fraction(1), sensitivity=Fraction(1)) for _ in range(4000)
    ]
    assert fits(drawn, permute_and_flip_masses(np.exp((np.array([3, 5, 4.5, 0]) - 5) / 2)), 0)


def test_the_exponential_mechanism_is_proportional_to_its_weights():
    stream, scores = SeededStream(5), [3, 5, Fraction(9, 2), 0]
    drawn = [
        discrete.exponential_mechanism(stream, scores, epsilon=Fraction(1), sensitivity=Fraction(1))
        for _ in range(4000)
    ]
    weights = np.exp(np.array([3, 5, 4.5, 0]) / 2)
    assert fits(drawn, weights / weights.sum(), 0)


def test_a_probability_that_a_word_cannot_hold_is_exact():
    stream = SeededStream(6)
    assert not any(discrete.bernoulli(stream, Fraction(1, 2**200)) for _ in range(100))
    assert discrete.bernoulli(stream, Fraction(1))
    assert not discrete.bernoulli(stream, Fraction(0))
    assert discrete.bernoulli_exp(stream, Fraction(0))


@pytest.mark.parametrize(
    "call",
    [
        lambda stream: discrete.bernoulli(stream, Fraction(3, 2)),
        lambda stream: discrete.bernoulli_exp(stream, Fraction(-1)),
        lambda stream: discrete.discrete_laplace(stream, Fraction(0)),
        lambda stream: discrete.discrete_gaussian(stream, Fraction(-1)),
        lambda stream: discrete.permute_and_flip(stream, [], epsilon=Fraction(1), sensitivity=Fraction(1)),
        lambda stream: discrete.exponential_mechanism(stream, [1], epsilon=Fraction(0), sensitivity=Fraction(1)),
    ],
)
def test_bad_parameters_are_refused(call):
    with pytest.raises(InvalidInput, match="must be"):
        call(SeededStream(0))


@pytest.mark.parametrize("shape", [0.0, 1.0, pytest.param(-0.5, marks=pytest.mark.slow)])
def test_truncated_negative_binomial(shape):
    law, stream = law_of(shape, trials=8), SeededStream(11)
    drawn = [discrete.truncated_negative_binomial(stream, Fraction(shape), Fraction(law.gamma)) for _ in range(1000)]
    k = np.arange(1, 60)
    masses = law.once * np.cumprod(np.append(1.0, (1 - law.gamma) * (k[:-1] + shape) / (k[:-1] + 1)))
    assert fits(drawn, masses, 1)


@pytest.mark.parametrize("mean", [Fraction(1, 3), Fraction(1), Fraction(17, 4)])
def test_poisson(mean):
    stream = SeededStream(12)
    drawn = [discrete.poisson(stream, mean) for _ in range(1000)]
    assert fits(drawn, stats.poisson.pmf(np.arange(30), float(mean)), 0)


def test_laws_of_trials_refuse_what_they_cannot_draw():
    for shape, gamma in ((Fraction(2), Fraction(1, 2)), (Fraction(-1), Fraction(1, 2)), (Fraction(0), Fraction(1))):
        with pytest.raises(InvalidInput):
            discrete.truncated_negative_binomial(SeededStream(0), shape, gamma)
    with pytest.raises(InvalidInput):
        discrete.poisson(SeededStream(0), Fraction(0))
