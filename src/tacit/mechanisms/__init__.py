"""Descriptions of randomised steps: mechanisms, their composition, and privacy amplification by subsampling."""

from tacit.mechanisms.allocation import BalancedIteration, BallsAndBins, RandomAllocation
from tacit.mechanisms.base import Compose, Mechanism, Poisson
from tacit.mechanisms.gaussian import DiscreteGaussian, Gaussian, GaussianMixture
from tacit.mechanisms.generic import Approximate, Generic, ZeroConcentrated
from tacit.mechanisms.laplace import (
    BoundedRange,
    DiscreteLaplace,
    Exponential,
    KaryRandomizedResponse,
    Laplace,
    PermuteAndFlip,
    RandomizedResponse,
)
from tacit.mechanisms.last_iterate import LastIterate, ObjectivePerturbation
from tacit.mechanisms.matrix import CyclicAllocation, CyclicPoisson, MatrixGaussian, MinSeparation, Strategy
from tacit.mechanisms.parallel import Menu, Parallel, alternatives
from tacit.mechanisms.selection import NegativeBinomial, PoissonTrials, Selection, TrialLaw, law_of
from tacit.mechanisms.spec import from_spec
from tacit.mechanisms.subsampling import FixedSize, Shuffled, TruncatedPoisson
from tacit.mechanisms.toeplitz import ToeplitzStrategy, TreeStrategy

__all__ = [
    "Approximate",
    "BalancedIteration",
    "BallsAndBins",
    "BoundedRange",
    "Compose",
    "CyclicAllocation",
    "CyclicPoisson",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "FixedSize",
    "Gaussian",
    "GaussianMixture",
    "Generic",
    "KaryRandomizedResponse",
    "Laplace",
    "LastIterate",
    "MatrixGaussian",
    "Mechanism",
    "Menu",
    "MinSeparation",
    "NegativeBinomial",
    "ObjectivePerturbation",
    "Parallel",
    "PermuteAndFlip",
    "Poisson",
    "PoissonTrials",
    "RandomAllocation",
    "RandomizedResponse",
    "Selection",
    "Shuffled",
    "Strategy",
    "ToeplitzStrategy",
    "TreeStrategy",
    "TrialLaw",
    "TruncatedPoisson",
    "ZeroConcentrated",
    "alternatives",
    "from_spec",
    "law_of",
]
