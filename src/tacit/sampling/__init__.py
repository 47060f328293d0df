"""Private samplers: they alone issue the batches that are trained on."""

from tacit.sampling.poisson import Batch, PoissonSampler

__all__ = ["Batch", "PoissonSampler"]
