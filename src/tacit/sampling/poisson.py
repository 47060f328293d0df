"""Poisson sampling: every record enters every batch independently with the same probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.mechanisms import Mechanism
from tacit.noise import SecureStream, Stream
from tacit.sampling.base import Batch, Sampler, Sampling


@dataclass(frozen=True)
class PoissonSampling(Sampling):
    """Every record independently with probability `sample_rate`; the exact accounting of Poisson subsampling."""

    type: ClassVar[str] = "poisson"

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> PoissonSampler:
        return PoissonSampler(records, sample_rate, stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        return base.poisson(sample_rate)


class PoissonSampler(Sampler):
    """Poisson batches, their records in ascending order.

    Args:
        records: number of records, >= 1.
        sample_rate: in (0, 1]; the probability of each record, and of nothing else, in each batch.
        stream: source of the random bits; a new `SecureStream` by default.
    """

    def __init__(self, records: int, sample_rate: float, stream: Stream | None = None):
        self.records = check.count("records", records)
        self.sample_rate = check.probability("sample_rate", sample_rate, open_low=True, hint="Use batch_size / n.")
        self.expected_size = self.records * self.sample_rate
        self.stream = stream if stream is not None else SecureStream()

    def draw(self) -> Batch:
        return Batch(bernoulli(self.stream, self.records, self.sample_rate))


def bernoulli(stream: Stream, records: int, rate: float) -> NDArray[np.int64]:
    """Positions of the successes of `records` independent trials: skips between successes are geometric."""
    if rate > 0.2:
        return np.flatnonzero(stream.uniform(records) < rate) if rate < 1.0 else np.arange(records)
    found: list[NDArray[np.int64]] = []
    last = -1
    mean = records * rate
    while last < records:
        skips = np.log(stream.uniform(int(mean + 5 * math.sqrt(mean)) + 8)) / math.log1p(-rate)
        positions = last + np.cumsum(np.minimum(skips, records).astype(np.int64) + 1)
        found.append(positions[positions < records])
        last = int(positions[-1])
    return np.concatenate(found)
