"""Private samplers: they alone issue the batches that are trained on, at the sampling rate of the accountant."""

from tacit import check
from tacit.sampling.allocation import BalancedIterationSampling, RandomAllocationSampling
from tacit.sampling.base import Batch, Sampler, Sampling
from tacit.sampling.cyclic import BallsAndBinsSampling, CyclicAllocationSampling, CyclicPoissonSampling
from tacit.sampling.poisson import (
    FixedSizeSampling,
    GroupedPoissonSampling,
    PoissonSampler,
    PoissonSampling,
    ShuffledSampling,
    TruncatedPoissonSampling,
)

__all__ = [
    "SAMPLINGS",
    "BalancedIterationSampling",
    "BallsAndBinsSampling",
    "Batch",
    "CyclicAllocationSampling",
    "CyclicPoissonSampling",
    "FixedSizeSampling",
    "GroupedPoissonSampling",
    "PoissonSampler",
    "PoissonSampling",
    "RandomAllocationSampling",
    "Sampler",
    "Sampling",
    "ShuffledSampling",
    "TruncatedPoissonSampling",
    "sampling_of",
]

SAMPLINGS: dict[str, type[Sampling]] = {
    kind.type: kind
    for kind in (
        PoissonSampling,
        FixedSizeSampling,
        ShuffledSampling,
        RandomAllocationSampling,
        BallsAndBinsSampling,
        BalancedIterationSampling,
        CyclicPoissonSampling,
        CyclicAllocationSampling,
    )
}


def sampling_of(sampling: str | Sampling) -> Sampling:
    """`sampling` itself, or the one of that name.

    Raises:
        InvalidInput: there is none of that name; the names and the nearest one are given.

    Example:
        >>> sampling_of("poisson")
        PoissonSampling()
    """
    if isinstance(sampling, Sampling):
        return sampling
    return SAMPLINGS[check.choice("sampling", sampling, SAMPLINGS)]()
