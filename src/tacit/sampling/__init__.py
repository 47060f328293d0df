"""Private samplers: they alone issue the batches that are trained on."""

from tacit.sampling.base import Batch, Sampler, Sampling
from tacit.sampling.poisson import PoissonSampler, PoissonSampling
from tacit.sampling.registry import SAMPLINGS, sampling_of

__all__ = ["SAMPLINGS", "Batch", "PoissonSampler", "PoissonSampling", "Sampler", "Sampling", "sampling_of"]
