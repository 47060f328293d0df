"""Disjoint batches: the records are shuffled and dealt out, every one once in each pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.mechanisms import Mechanism, Shuffled
from tacit.noise import SecureStream, Stream
from tacit.sampling.base import Batch, Sampler, Sampling, whole_batch
from tacit.sampling.fixed_size import permutation


@dataclass(frozen=True)
class ShuffledSampling(Sampling):
    """Passes over the shuffled records in batches of records * sample_rate; each pass costs what one full batch does.

    No amplification is claimed, and noise may change from pass to pass only.

    Args:
        series: see `Shuffled`; a run numbers its own.
    """

    type: ClassVar[str] = "shuffled"
    assumptions: ClassVar[tuple[str, ...]] = (
        "Batches are disjoint within a pass; under add_remove a record that is missing is one that adds nothing.",
    )
    series: int = 0

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> ShuffledSampler:
        return ShuffledSampler(records, whole_batch(records, sample_rate), stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        return Shuffled(base, records, whole_batch(records, sample_rate), self.series)

    def in_series(self, number: int) -> ShuffledSampling:
        return replace(self, series=number)

    def steps_alike(self, records: int, sample_rate: float) -> int:
        return math.ceil(records / whole_batch(records, sample_rate))


class ShuffledSampler(Sampler):
    """Batches of `batch_size` in the order of a fresh permutation for every pass; the last of a pass may be smaller.

    Args:
        records: number of records, >= 1.
        batch_size: in [1, records].
        stream: source of the random bits; a new `SecureStream` by default.
    """

    def __init__(self, records: int, batch_size: int, stream: Stream | None = None):
        self.records = check.count("records", records)
        self.batch_size = check.count("batch_size", batch_size)
        if self.batch_size > self.records:
            raise check.fail("batch_size", f"at most records = {self.records}", batch_size)
        self.expected_size = float(self.batch_size)
        self._stream = stream if stream is not None else SecureStream()
        self._left: NDArray[np.int64] = np.empty(0, np.int64)

    def draw(self) -> Batch:
        if not len(self._left):
            self._left = permutation(self._stream, self.records)
        batch, self._left = self._left[: self.batch_size], self._left[self.batch_size :]
        return Batch(np.sort(batch))

    def state(self) -> dict[str, Any]:
        """The records that this pass has still to deal out; their order amplifies nothing, so it is no secret."""
        return super().state() | {"left": self._left}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._left = state["left"]
