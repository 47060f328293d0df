"""Every mechanism and transformer through `check_mechanism`, and faults that it finds."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from tacit import mechanisms, noise
from tacit.mechanisms import (
    Approximate,
    BalancedIteration,
    BallsAndBins,
    BoundedRange,
    CyclicAllocation,
    CyclicPoisson,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    FixedSize,
    Gaussian,
    GaussianMixture,
    Generic,
    KaryRandomizedResponse,
    Laplace,
    LastIterate,
    MatrixGaussian,
    Mechanism,
    Menu,
    MinSeparation,
    ObjectivePerturbation,
    Parallel,
    PermuteAndFlip,
    RandomAllocation,
    RandomizedResponse,
    Selection,
    Shuffled,
    ToeplitzStrategy,
    TreeStrategy,
    TruncatedPoisson,
    ZeroConcentrated,
)
from tacit.mechanisms.spec import TYPES
from tacit.noise import SeededStream
from tacit.testing import check_mechanism

MECHANISMS = [
    Gaussian(1.5),
    Gaussian(0.8).poisson(0.1),
    Laplace(2.0),
    Laplace(2.0, sensitivity=3.0),
    Laplace(1.0).poisson(0.3),
    DiscreteGaussian(2.0),
    DiscreteGaussian(2.0, 3),
    DiscreteGaussian(1.3).poisson(0.2),
    Exponential(1.0),
    Exponential(1.0).poisson(0.2),
    BoundedRange(0.7),
    RandomizedResponse(1.0),
    RandomizedResponse(1.0).poisson(0.5),
    DiscreteLaplace(0.4, 3),
    DiscreteLaplace(0.4, 3).poisson(0.2),
    GaussianMixture(1.0, (0.5, 1.0, 2.0), (0.2, 0.6, 0.2)),
    KaryRandomizedResponse(0.3, 5),
    PermuteAndFlip(1.0),
    PermuteAndFlip(1.0).poisson(0.2),
    ZeroConcentrated(0.1, 0.05),
    ZeroConcentrated(0.1).poisson(0.2),
    Approximate(1.0, 1e-6),
    Approximate(1.0, 0.0),
    Generic((2.0, 4.0, 8.0), (0.1, 0.2, 0.5)),
    ObjectivePerturbation(2.0, 0.3),
    ObjectivePerturbation(2.0, 0.3, corners=3),
    FixedSize(Gaussian(1.0), 100, 10),
    FixedSize(Laplace(1.0), 100, 10),
    Shuffled(Gaussian(1.0), 100, 10),
    TruncatedPoisson(Gaussian(1.0), 0.1, 100, 12),
    TruncatedPoisson(Gaussian(1.0), 0.1, 100, 30),
    RandomAllocation(Gaussian(1.0), 20),
    MatrixGaussian(2.0, ToeplitzStrategy(20, (1.0, 0.5))),
    CyclicPoisson(MatrixGaussian(2.0, ToeplitzStrategy(20, (1.0, 0.5))), 4, 0.3),
    CyclicAllocation(MatrixGaussian(2.0, ToeplitzStrategy(20, (1.0, 0.5))), 4, 5),
    BallsAndBins(Gaussian(2.0), 20, 3),
    BalancedIteration(Gaussian(2.0), 20, 3),
    BalancedIteration(Gaussian(2.0), 5, 3),
    MinSeparation(MatrixGaussian(2.0, ToeplitzStrategy(20, normalised=False, buffers=((0.5, 0.25),))), 4, 5),
    MinSeparation(MatrixGaussian(4.0, TreeStrategy(20)), 4, 5),
    LastIterate(2.0, 30, 1.0, 0.5, 0.1),
    LastIterate(2.0, 300, 1.0, 0.5, 0.01, 1.0, 2.0),
    Gaussian(1.0) * 3 + Laplace(2.0),
    Parallel.of(Gaussian(1.0), Laplace(2.0)),
    Menu.of([Gaussian(2.0), Laplace(3.0)], [Gaussian(4.0)]),
    Selection.of(Laplace(2.0)),
    Selection.of(Laplace(2.0), trials=1),
    Selection.of(Gaussian(2.0).poisson(0.1) * 5 + Laplace(3.0), law="poisson", trials=3),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_mechanism_is_consistent(mechanism):
    check_mechanism(mechanism)


def test_every_mechanism_is_checked():
    named = [value for name in mechanisms.__all__ if isinstance(value := getattr(mechanisms, name), type)]
    public = {value for value in named if issubclass(value, Mechanism)}
    checked = {type(each) for each in MECHANISMS} | {Mechanism}
    assert public | set(TYPES.values()) == checked


STREAM = SeededStream(7)


def exponential(record, count):
    """Report-noisy-max by Gumbel noise over two candidates of which the record prefers the first."""
    scores = np.array([float(record), 0.0])
    return np.argmax(0.5 * scores + -np.log(-np.log(STREAM.uniform((count, 2)))), axis=1)


def response(record, count):
    return (STREAM.uniform(count) < np.exp(1) / (1 + np.exp(1))) == record


def poisson_gaussian(record, count):
    present = (STREAM.uniform(count) < 0.3) & record
    return present + noise.gaussian(STREAM, count, std=1.0)


def permute_and_flip(record, count):
    """The arg max of scores with exponential noise, the score of the first of two candidates moved up."""
    noisy = np.array([0.5 * float(record), 0.0]) - np.log(STREAM.uniform((count, 2)))
    return np.argmax(noisy, axis=1)


def discrete_laplace(record, count):
    """The difference of two geometric numbers."""
    first, second = (np.floor(np.log(STREAM.uniform(count)) / -0.7) for _ in range(2))
    return float(record) + first - second


SAMPLERS = {
    "permute_and_flip": (PermuteAndFlip(0.5), permute_and_flip),
    "discrete_laplace": (DiscreteLaplace(0.7), discrete_laplace),
    "gaussian": (Gaussian(0.7), lambda record, count: record + noise.gaussian(STREAM, count, std=0.7)),
    "laplace": (Laplace(0.5), lambda record, count: record + noise.laplace(STREAM, count, scale=0.5)),
    "exponential": (Exponential(1.0), exponential),
    "randomized_response": (RandomizedResponse(1.0), response),
    "poisson_gaussian": (Gaussian(1.0).poisson(0.3), poisson_gaussian),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_noise_of_the_library_is_no_less_private_than_the_facets(name):
    mechanism, draw = SAMPLERS[name]
    check_mechanism(mechanism, draw=draw)


def test_too_little_noise_is_found():
    with pytest.raises(AssertionError, match=r"must have delta\(.*its draws show"):
        check_mechanism(Gaussian(1.0), draw=lambda record, count: record + noise.gaussian(STREAM, count, std=0.8))


@dataclass(frozen=True)
class SmallRdp(Laplace):
    """Renyi divergences one per cent below the true ones."""

    type: ClassVar[str] = "small_rdp"

    def rdp(self, orders, relation):
        return 0.99 * super().rdp(orders, relation)


@dataclass(frozen=True)
class SmallPure(Laplace):
    """A pure epsilon below the largest loss."""

    type: ClassVar[str] = "small_pure"

    def pure_epsilon(self, relation):
        return 0.99 * relation.sensitivity * self.sensitivity / self.scale

    def rdp(self, orders, relation):
        return Laplace(self.scale).rdp(orders, relation)

    def zcdp(self, relation):
        return Laplace(self.scale).zcdp(relation)

    def dominating_pairs(self, relation):
        return Laplace(self.scale).dominating_pairs(relation)


@dataclass(frozen=True)
class WrongMu(Gaussian):
    """A Gaussian DP parameter above the exact one."""

    type: ClassVar[str] = "wrong_mu"

    def mu(self, relation):
        return 1.01 * super().mu(relation)

    def dominating_pairs(self, relation):
        return Gaussian(self.noise_multiplier).dominating_pairs(relation)


@dataclass(frozen=True)
class ForgetsSensitivity(Laplace):
    """Replacing costs less than adding."""

    type: ClassVar[str] = "forgets_sensitivity"

    def pure_epsilon(self, relation):
        return 1 / (self.scale * relation.sensitivity)

    def dominating_pairs(self, relation):
        raise self.refusal("dominating pair", relation)

    rdp = Mechanism.rdp
    zcdp = Mechanism.zcdp


FAULTS = {
    "rdp .* must be at least": SmallRdp(1.0),
    "pure_epsilon .* must leave a delta": SmallPure(1.0),
    "mu-GDP": WrongMu(1.0),
    "must not be less under replace_one": ForgetsSensitivity(1.0),
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_wrong_facet_is_found(message, monkeypatch):
    mechanism = FAULTS[message]
    monkeypatch.setitem(TYPES, mechanism.type, type(mechanism))
    with pytest.raises(AssertionError, match=message):
        check_mechanism(mechanism)


def test_a_type_that_a_ledger_cannot_load_is_found():
    from tacit.errors import InvalidInput

    with pytest.raises(InvalidInput, match="type must be one of"):
        check_mechanism(SmallRdp(1.0))
