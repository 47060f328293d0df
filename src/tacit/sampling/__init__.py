"""Private samplers: they alone issue the batches that are trained on, at the sampling rate of the accountant."""

from tacit.sampling.allocation import (
    BalancedIterationSampler,
    BalancedIterationSampling,
    RandomAllocationSampler,
    RandomAllocationSampling,
)
from tacit.sampling.base import Batch, Sampler, Sampling
from tacit.sampling.cyclic import (
    BallsAndBinsSampling,
    CyclicAllocationSampler,
    CyclicAllocationSampling,
    CyclicPoissonSampler,
    CyclicPoissonSampling,
)
from tacit.sampling.poisson import (
    FixedSizeSampler,
    FixedSizeSampling,
    GroupedPoissonSampler,
    GroupedPoissonSampling,
    PoissonSampler,
    PoissonSampling,
    ShuffledSampler,
    ShuffledSampling,
    TruncatedPoissonSampler,
    TruncatedPoissonSampling,
)
from tacit.sampling.registry import SAMPLINGS, sampling_of

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
