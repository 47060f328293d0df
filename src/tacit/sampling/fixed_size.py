"""Batches of one fixed size, drawn afresh for every step without replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.mechanisms import FixedSize, Mechanism
from tacit.noise import SecureStream, Stream
from tacit.relation import Relation
from tacit.sampling.base import Batch, Sampler, Sampling, whole_batch


@dataclass(frozen=True)
class FixedSizeSampling(Sampling):
    """A uniform subset of exactly records * sample_rate records, independent from step to step; under replace_one."""

    type: ClassVar[str] = "fixed_size"
    relations: ClassVar[tuple[Relation, ...]] = (Relation.REPLACE_ONE,)

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> FixedSizeSampler:
        return FixedSizeSampler(records, whole_batch(records, sample_rate), stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        return FixedSize(base, records, whole_batch(records, sample_rate))


class FixedSizeSampler(Sampler):
    """Uniform subsets of `batch_size` of `records`, their records in ascending order.

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

    def draw(self) -> Batch:
        return Batch(subset(self._stream, self.records, self.batch_size))


def subset(stream: Stream, records: int, size: int) -> NDArray[np.int64]:
    """A uniform subset of `size` of 0..records-1, ascending: the first distinct ones of uniform integers."""
    if 4 * size > records:
        return np.sort(permutation(stream, records)[:size])
    found = np.empty(0, np.int64)
    while len(found) < size:
        drawn = np.concatenate([found, _integers(stream, records, size - len(found) + 8)])
        found = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    return np.sort(found[:size])


def permutation(stream: Stream, records: int) -> NDArray[np.int64]:
    """0..records-1 in the order of as many random 64-bit words: uniform, up to ties of chance records^2 / 2^65."""
    return np.argsort(stream.bits(records))


def _integers(stream: Stream, below: int, count: int) -> NDArray[np.int64]:
    """About `count` independent integers, exactly uniform in 0..below-1: words that would favour some are left out."""
    words = stream.bits(count)
    limit = np.uint64(2**64 - 1 - 2**64 % below)
    return (words[words <= limit] % np.uint64(below)).astype(np.int64)
