"""Descriptions of randomised steps: one file per mechanism and per transformer."""

from tacit.mechanisms.approximate import Approximate
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.compose import Compose
from tacit.mechanisms.exponential import BoundedRange, Exponential, RandomizedResponse
from tacit.mechanisms.gaussian import Gaussian
from tacit.mechanisms.generic import Generic
from tacit.mechanisms.laplace import Laplace
from tacit.mechanisms.poisson import Poisson
from tacit.mechanisms.spec import from_spec, parse_mechanisms

__all__ = [
    "Approximate",
    "BoundedRange",
    "Compose",
    "Exponential",
    "Gaussian",
    "Generic",
    "Laplace",
    "Mechanism",
    "Poisson",
    "RandomizedResponse",
    "from_spec",
    "parse_mechanisms",
]
