"""Truncated lattices against a quadrature over the noise of two steps, the third in closed form."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.accounting import Ledger
from tacit.accounting.pld.accountant import Pld
from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.fft import Convolution
from tacit.accounting.pld.truncation import TruncatedLattice, TruncatedPair, Truncation
from tacit.mechanisms import Gaussian
from tacit.mechanisms.pairs import GaussianMixturePair, SampledGaussianPair

RARE = [(0.8, 4e-4), (2.0, 1e-3), (0.6, 0.05)]


def losses(sigma: float, rate: float, noise: np.ndarray, sign: int) -> np.ndarray:
    """The loss at a noise in standard deviations of the law without the record."""
    return sign * np.log1p(rate * np.expm1(noise / sigma - 0.5 / sigma**2))


def one_step(sigma: float, rate: float, epsilon: np.ndarray, sign: int) -> np.ndarray:
    """delta of one step at any real epsilon, in closed form."""
    with np.errstate(divide="ignore", invalid="ignore"):
        place = sigma * (np.log1p(np.expm1(sign * epsilon) / rate)) + 0.5 / sigma
    place = np.where(np.isnan(place), -np.inf, place)
    away, near = ndtr(-sign * place), ndtr(-sign * (place - 1 / sigma))
    mixed = (1 - rate) * away + rate * near
    p, q = (mixed, away) if sign > 0 else (away, mixed)
    return p - np.exp(epsilon) * q


def three_steps(sigma: float, rate: float, epsilon: float, sign: int) -> float:
    """delta of three steps by the trapezoid rule over the noise of two.

    The integrand is smooth and not analytic: 1601 nodes meet the values of 8801 to 2e-7.
    """
    u, step = np.linspace(-8.0, 8.0 + 1 / sigma, 1601, retstep=True)
    base, moved = (step * np.exp(-((u - shift) ** 2) / 2) / np.sqrt(2 * np.pi) for shift in (0.0, 1 / sigma))
    p = (1 - rate) * base + rate * moved if sign > 0 else base
    loss = losses(sigma, rate, u, sign)
    rest = one_step(sigma, rate, epsilon - np.add.outer(loss, loss).ravel(), sign)
    return float(np.multiply.outer(p, p).ravel() @ rest)


@pytest.mark.slow_cases
@pytest.mark.parametrize(("sigma", "rate"), RARE)
@pytest.mark.parametrize("remove", [True, False])
def test_bounds_hold_a_quadrature(sigma: float, rate: float, remove: bool):
    pair = SampledGaussianPair(sigma, rate, remove)
    top = 3 * pair.largest
    for epsilon in (0.3 * top, 0.6 * top) if not remove else (rate, 10 * rate):
        local = Truncation([(pair, 3)], 2e-7).near_epsilon(epsilon)
        assert local is not None
        low, high = local.bounds(epsilon)
        exact = three_steps(sigma, rate, epsilon, 1 if remove else -1)
        assert low * (1 - 1e-6) <= exact <= high * (1 + 1e-6)
        assert high - low <= 1e-5 * high


def group_loss(pair: GaussianMixturePair, z: np.ndarray) -> np.ndarray:
    """The loss at noise z of unit deviation, from the weights alone."""
    shifts, weights = np.arange(len(pair.shifts)), np.exp(pair.log_weights)
    found = np.log(np.exp(np.multiply.outer(z, shifts) / pair.sigma - (shifts / pair.sigma) ** 2 / 2) @ weights)
    return found if pair.remove else -found


def two_steps_of_a_group(pair: GaussianMixturePair, epsilon: float) -> float:
    """delta of two steps: the second in closed form at the noise where its loss is what the first one leaves."""
    shifts, weights = np.arange(len(pair.shifts)) / pair.sigma, np.exp(pair.log_weights)
    z, step = np.linspace(-10.0, 10.0 + shifts[-1], 20_001, retstep=True)
    density = step * np.exp(-(np.subtract.outer(z, shifts) ** 2) / 2) / np.sqrt(2 * np.pi)
    left = epsilon - group_loss(pair, z)
    low, high = np.full(len(z), -60.0), np.full(len(z), 60.0 + shifts[-1])
    for _ in range(60):
        middle = (low + high) / 2
        below = (group_loss(pair, middle) < left) == pair.remove
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    sign = 1 if pair.remove else -1
    base, mixed = ndtr(-sign * low), ndtr(-sign * np.subtract.outer(low, shifts)) @ weights
    p, q = (mixed, base) if pair.remove else (base, mixed)
    return float((density @ weights if pair.remove else density[:, 0]) @ np.maximum(p - np.exp(left) * q, 0.0))


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("sigma", "rate", "size"), [(1.2, 2e-3, 2), (0.9, 1e-3, 5), (2.0, 4e-4, 16)])
def test_bounds_of_groups_hold_a_quadrature(sigma: float, rate: float, size: int, remove: bool):
    pair = GaussianMixturePair.of_group(sigma, rate, size, remove=remove)
    for share in (0.2, 0.7) if not remove else (0.5, 5.0):
        epsilon = share * 2 * size * rate
        local = Truncation([(pair, 2)], 2e-7).near_epsilon(epsilon)
        assert local is not None
        low, high = local.bounds(epsilon)
        assert low * (1 - 1e-6) <= two_steps_of_a_group(pair, epsilon) <= high * (1 + 1e-6)
        assert high - low <= 1e-5 * high


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "size"), [(0.5, 1e-4, 1000, 8), (0.5, 1e-3, 1000, 8), (1.0, 1e-3, 300, 2)]
)
def test_groups_that_are_rarely_sampled_have_a_narrow_epsilon(sigma: float, rate: float, steps: int, size: int):
    """Few samples of many records reach far, and a lattice of all losses was up to 1e-3 wide."""
    ledger = Ledger.of(Gaussian(sigma).poisson(rate) * steps)
    low, high = Pld().grouped(ledger, size).epsilon(1e-5).interval
    assert 0 < low <= high <= low * (1 + 3e-6)
    pair = GaussianMixturePair.of_group(sigma, rate, size, remove=True)
    every_loss = Convolution([(pair, steps)], gap=1e-5, largest=1 << 16)
    bounds = [every_loss.bracket(every_loss.saddle_for_epsilon(low)).bounds(epsilon) for epsilon in (low, high)]
    assert bounds[0][1] >= 1e-5 * (1 - 1e-6)
    assert bounds[1][0] <= 1e-5 * (1 + 1e-6)


def test_a_setting_whose_bracket_was_once_three_quarters_wide():
    mechanism = Gaussian(0.41238387593822723).poisson(2.0900778554267452e-05) * 3
    answer = Pld()(mechanism).epsilon(3.2082160044298976e-05)
    assert answer.lower > 0
    assert answer.upper - answer.lower <= 1e-6 * answer.lower


def test_a_small_lattice_and_a_fine_one_never_exclude_each_other():
    random = np.random.default_rng(7)
    for _ in range(8):
        sigma, rate = float(10 ** random.uniform(-0.4, 0.7)), float(10 ** random.uniform(-5, -2))
        steps, delta = int(10 ** random.uniform(0.5, 2)), float(10 ** random.uniform(-11, -5))
        for remove in (True, False):
            pair = SampledGaussianPair(sigma, rate, remove)
            builder = Truncation([(pair, steps)], 2e-7)
            found = builder.near_delta(delta, Dispatch([(pair, steps)]).general.saddle_for_delta(delta).epsilon)
            if found is None or not found.epsilon > 0:
                continue
            rough = builder._lattice(found.epsilon, 2.0, 1 << 11)
            assert rough is not None
            low, high = found.bounds(found.epsilon)
            floor, ceiling = rough.bounds(found.epsilon)
            assert max(low, floor) <= min(high, ceiling)


def test_beyond_the_limit_the_bounds_are_those_of_the_limit():
    for remove in (True, False):
        local = Truncation([(SampledGaussianPair(1.0, 1e-3, remove), 20)], 2e-7).near_epsilon(5e-3)
        assert isinstance(local, TruncatedLattice)
        beyond = local.limit * (1.1 if remove else 0.9)
        at, there = local.bounds(local.limit), local.bounds(beyond)
        assert there == ((0.0, at[1]) if remove else (at[0], 1.0))


def test_masses_of_a_truncated_pair_are_those_inside():
    pair = SampledGaussianPair(0.7, 0.01, True)
    edges = np.linspace(-0.02, 1.0, 12)
    for low, high in ((-np.inf, 0.5), (0.0, np.inf), (-0.005, 0.3)):
        inside = TruncatedPair(pair, low, high).bin_masses(edges)
        whole = pair.bin_masses(np.unique(np.concatenate([edges, [low, high]])))
        ends = np.concatenate([[-np.inf], np.unique(np.concatenate([edges, [low, high]])), [np.inf]])
        middle = [(a >= low and b <= high) for a, b in itertools.pairwise(ends)]
        for kept, all_ in zip(inside, whole, strict=True):
            assert kept.sum() == pytest.approx(all_[middle].sum(), rel=1e-12)


def test_only_rare_samples_of_one_direction_are_truncated():
    one, other = SampledGaussianPair(1.0, 1e-3, True), SampledGaussianPair(1.0, 1e-3, False)
    assert Truncation.of([(one, 100)], 2e-7) is not None
    for parts in ([(one, 100), (other, 100)], [(one, 1)], [(one, 10**5)], [(SampledGaussianPair(1.0, 1.0, True), 3)]):
        assert Truncation.of(parts, 2e-7) is None
