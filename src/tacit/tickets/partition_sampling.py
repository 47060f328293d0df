"""`PartSampling`: Poisson sampling from one part of the records, whose size and records are secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.mechanisms import Mechanism
from tacit.noise import Stream
from tacit.sampling import Batch, Sampler, Sampling
from tacit.sampling.poisson import bernoulli


@dataclass(frozen=True)
class PartSampling(Sampling):
    """Every record of the part independently with probability `sample_rate`, and no other.

    Args:
        part: for each of all records whether it is in the part, by a coin of its own; secret.
        expected: how many records the part has on average, a public number: sizes of batches are in terms of it.
    """

    type: ClassVar[str] = "poisson"
    part: NDArray[np.bool_] = field(repr=False, compare=False)
    expected: int

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> Sampler:
        """A Poisson sampler of the part alone."""
        return _PartSampler(np.flatnonzero(self.part), self.expected, sample_rate, stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`base` under Poisson sampling at `sample_rate`."""
        return base.poisson(sample_rate)

    def units(self, records: int) -> int:
        """Expected size of the part."""
        return self.expected


class _PartSampler(Sampler):
    def __init__(self, part: NDArray[np.int64], expected: int, sample_rate: float, stream: Stream):
        self.expected_size = expected * sample_rate
        self._part, self._rate, self._stream = part, sample_rate, stream

    def draw(self) -> Batch:
        return Batch(self._part[bernoulli(self._stream, len(self._part), self._rate)])
