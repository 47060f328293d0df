"""Private samplers: they alone issue the batches that are trained on, at the sampling rate of the accountant."""

from tacit.sampling.allocation import RandomAllocationSampler, RandomAllocationSampling
from tacit.sampling.balanced import BalancedIterationSampler, BalancedIterationSampling
from tacit.sampling.base import Batch, Sampler, Sampling
from tacit.sampling.cyclic import (
    BallsAndBinsSampling,
    CyclicAllocationSampler,
    CyclicAllocationSampling,
    CyclicPoissonSampler,
    CyclicPoissonSampling,
)
from tacit.sampling.fixed_size import FixedSizeSampler, FixedSizeSampling
from tacit.sampling.poisson import PoissonSampler, PoissonSampling, TruncatedPoissonSampler, TruncatedPoissonSampling
from tacit.sampling.registry import SAMPLINGS, sampling_of
from tacit.sampling.shuffled import ShuffledSampler, ShuffledSampling
from tacit.sampling.users import GroupedPoissonSampler, GroupedPoissonSampling

__all__ = [
    "SAMPLINGS",
    "BalancedIterationSampler",
    "BalancedIterationSampling",
    "BallsAndBinsSampling",
    "Batch",
    "CyclicAllocationSampler",
    "CyclicAllocationSampling",
    "CyclicPoissonSampler",
    "CyclicPoissonSampling",
    "FixedSizeSampler",
    "FixedSizeSampling",
    "GroupedPoissonSampler",
    "GroupedPoissonSampling",
    "PoissonSampler",
    "PoissonSampling",
    "RandomAllocationSampler",
    "RandomAllocationSampling",
    "Sampler",
    "Sampling",
    "ShuffledSampler",
    "ShuffledSampling",
    "TruncatedPoissonSampler",
    "TruncatedPoissonSampling",
    "sampling_of",
]
