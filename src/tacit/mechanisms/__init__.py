"""Descriptions of randomised steps: mechanisms, their composition, and privacy amplification by subsampling."""

from tacit.mechanisms.allocation import RandomAllocation
from tacit.mechanisms.base import Compose, Mechanism, Poisson
from tacit.mechanisms.discrete_gaussian import DiscreteGaussian
from tacit.mechanisms.exponential import BoundedRange, Exponential, RandomizedResponse
from tacit.mechanisms.gaussian import Gaussian
from tacit.mechanisms.generic import Approximate, Generic
from tacit.mechanisms.laplace import Laplace
from tacit.mechanisms.matrix import CyclicAllocation, CyclicPoisson, MatrixGaussian
from tacit.mechanisms.objective import ObjectivePerturbation
from tacit.mechanisms.parallel import Parallel, alternatives
from tacit.mechanisms.spec import from_spec
from tacit.mechanisms.subsampling import FixedSize, Shuffled, TruncatedPoisson
from tacit.mechanisms.toeplitz import ToeplitzStrategy

__all__ = [
    "Approximate",
    "BoundedRange",
    "Compose",
    "CyclicAllocation",
    "CyclicPoisson",
    "DiscreteGaussian",
    "Exponential",
    "FixedSize",
    "Gaussian",
    "Generic",
    "Laplace",
    "MatrixGaussian",
    "Mechanism",
    "ObjectivePerturbation",
    "Parallel",
    "Poisson",
    "RandomAllocation",
    "RandomizedResponse",
    "Shuffled",
    "ToeplitzStrategy",
    "TruncatedPoisson",
    "alternatives",
    "from_spec",
]
