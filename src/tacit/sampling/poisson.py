"""Poisson sampling: every record enters every batch independently with the same probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.errors import TrainingMisuse
from tacit.noise import SecureStream, Stream


@dataclass(frozen=True, eq=False)
class Batch:
    """The records of one batch, ascending and without repetition; each issued batch is its own token."""

    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)


class PoissonSampler:
    """Issues Poisson batches and takes each back exactly once, so that only what it drew can be trained on.

    A batch that was issued but not used is issued again: leaving a batch out, or looking at one before training,
    cannot bend the distribution that the accountant assumes.

    Args:
        records: number of records, >= 1.
        sample_rate: in (0, 1]; the probability of each record, and of nothing else, in each batch.
        stream: source of the random bits; a new `SecureStream` by default.
    """

    def __init__(self, records: int, sample_rate: float, stream: Stream | None = None):
        self.records = check.count("records", records)
        self.sample_rate = check.probability("sample_rate", sample_rate, open_low=True, hint="Use batch_size / n.")
        self._stream = stream if stream is not None else SecureStream()
        self._open: Batch | None = None

    @property
    def expected_size(self) -> float:
        """Mean size of a batch."""
        return self.records * self.sample_rate

    def issue(self) -> Batch:
        """The batch to train on next; the same one until it has been redeemed."""
        if self._open is None:
            self._open = Batch(_bernoulli(self._stream, self.records, self.sample_rate))
        return self._open

    def redeem(self, batch: Batch) -> None:
        """Take back `batch`; raises `TrainingMisuse` unless it is the one issued last and not yet used."""
        if batch is not self._open or batch is None:
            raise TrainingMisuse(
                "batch must be one that the private sampler issued and that was not used before; got another. "
                "Train on what the private loader yields, once each."
            )
        self._open = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: nothing but the stream's. Raises `TrainingMisuse` while a batch is open.

        Who is in a batch that is still to be trained on must stay secret, so it is never written down.
        """
        if self._open is not None:
            raise TrainingMisuse("a checkpoint must be taken between steps; got one while a batch is open.")
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""


def _bernoulli(stream: Stream, records: int, rate: float) -> NDArray[np.int64]:
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
