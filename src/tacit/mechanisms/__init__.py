"""Descriptions of randomised steps: mechanisms, their composition, and privacy amplification by subsampling."""

from tacit.mechanisms.allocation import RandomAllocation
from tacit.mechanisms.balanced_iteration import BalancedIteration
from tacit.mechanisms.balls_and_bins import BallsAndBins
from tacit.mechanisms.base import Compose, Mechanism, Poisson
from tacit.mechanisms.discrete_gaussian import DiscreteGaussian
from tacit.mechanisms.exponential import (
    BoundedRange,
    Exponential,
    KaryRandomizedResponse,
    PermuteAndFlip,
    RandomizedResponse,
)
from tacit.mechanisms.gaussian import Gaussian, GaussianMixture
from tacit.mechanisms.generic import Approximate, Generic, ZeroConcentrated
from tacit.mechanisms.laplace import DiscreteLaplace, Laplace
from tacit.mechanisms.last_iterate import LastIterate
from tacit.mechanisms.matrix import CyclicAllocation, CyclicPoisson, MatrixGaussian, MinSeparation, Strategy
from tacit.mechanisms.menu import Menu
from tacit.mechanisms.objective import ObjectivePerturbation
from tacit.mechanisms.parallel import Parallel, alternatives
from tacit.mechanisms.selection import Selection
from tacit.mechanisms.spec import from_spec
from tacit.mechanisms.subsampling import FixedSize, Shuffled, TruncatedPoisson
from tacit.mechanisms.toeplitz import ToeplitzStrategy
from tacit.mechanisms.tree import TreeStrategy
from tacit.mechanisms.trial_laws import NegativeBinomial, PoissonTrials, TrialLaw, law_of

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
