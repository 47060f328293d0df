"""Fixed-size sampling: batches of one size, drawn without replacement, independently at every step.

Shuffled sampling: disjoint batches of shuffled records, every record once in each pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.mechanisms import FixedSize, Mechanism, Shuffled
from tacit.noise import Stream
from tacit.relation import Relation
from tacit.sampling.base import Batch, ExactSizeSampler, Sampling, exact_batch_size


@dataclass(frozen=True)
class FixedSizeSampling(Sampling):
    """A uniform subset of exactly records * sample_rate records, independent from step to step; under replace_one.

    Example:
        >>> from tacit.noise import SeededStream
        >>> len(FixedSizeSampling().sampler(10, 0.2, SeededStream(0)).draw())
        2
    """

    type: ClassVar[str] = "fixed_size"
    uniform: ClassVar[bool] = True
    reads_records: ClassVar[bool] = True
    relations: ClassVar[tuple[Relation, ...]] = (Relation.REPLACE_ONE,)

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> FixedSizeSampler:
        """A sampler of uniform subsets; raises `InvalidInput` unless records * sample_rate is an integer."""
        return FixedSizeSampler(records, exact_batch_size(records, sample_rate), stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`FixedSize` subsampling of `base`."""
        return FixedSize(base, records, exact_batch_size(records, sample_rate))


class FixedSizeSampler(ExactSizeSampler):
    """Uniform subsets of `batch_size` of `records`, their records in ascending order.

    Args:
        records: number of records, >= 1.
        batch_size: in [1, records].
        stream: source of the random bits; a new `SecureStream` by default.

    Example:
        >>> from tacit.noise import SeededStream
        >>> len(FixedSizeSampler(10, 3, SeededStream(0)).draw())
        3
    """

    def draw(self) -> Batch:
        """A fresh uniform subset."""
        return Batch(subset(self._stream, self.records, self.batch_size))


def subset(stream: Stream, records: int, size: int) -> NDArray[np.int64]:
    """A uniform subset of `size` of 0..records-1, ascending: the first distinct ones of uniform integers."""
    # Of a larger share so many integers repeat that a whole permutation is cheaper.
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
    """About `count` independent integers, exactly uniform in 0..below-1: words that would favour some are dropped."""
    words = stream.bits(count)
    limit = np.uint64(2**64 - 1 - 2**64 % below)
    return (words[words <= limit] % np.uint64(below)).astype(np.int64)


@dataclass(frozen=True)
class ShuffledSampling(Sampling):
    """Passes over the shuffled records in batches of records * sample_rate; each pass costs what one full batch does.

    No amplification is claimed, and noise may change from pass to pass only.

    Args:
        series: see `Shuffled`; a run numbers its own.

    Example:
        >>> ShuffledSampling().steps_alike(10, 0.2)
        5
    """

    type: ClassVar[str] = "shuffled"
    uniform: ClassVar[bool] = True
    reads_records: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = (
        "Batches are disjoint within a pass; under add_remove a record that is missing is one that adds nothing.",
    )
    series: int = 0

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> ShuffledSampler:
        """A sampler of disjoint batches; raises `InvalidInput` unless records * sample_rate is an integer."""
        return ShuffledSampler(records, exact_batch_size(records, sample_rate), stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`Shuffled`: each pass costs what one full batch does, and its last batch runs even where it is smaller."""
        size = exact_batch_size(records, sample_rate)
        return Shuffled(base, records, size, self.series, drop_last=records % size == 0)

    def in_series(self, number: int) -> ShuffledSampling:
        """This sampling with series `number`."""
        return replace(self, series=number)

    def steps_alike(self, records: int, sample_rate: float) -> int:
        """The steps of one pass."""
        return math.ceil(records / exact_batch_size(records, sample_rate))


class ShuffledSampler(ExactSizeSampler):
    """Batches of `batch_size` in the order of a fresh permutation for every pass; the last of a pass may be smaller.

    Args:
        records: number of records, >= 1.
        batch_size: in [1, records].
        stream: source of the random bits; a new `SecureStream` by default.

    Example:
        >>> from tacit.noise import SeededStream
        >>> sampler = ShuffledSampler(4, 2, SeededStream(0))
        >>> sorted([*sampler.draw().indices.tolist(), *sampler.draw().indices.tolist()])
        [0, 1, 2, 3]
    """

    def __init__(self, records: int, batch_size: int, stream: Stream | None = None):
        super().__init__(records, batch_size, stream)
        self._left: NDArray[np.int64] = np.empty(0, np.int64)

    def draw(self) -> Batch:
        """The next records of this pass, or the first of a new one."""
        if not len(self._left):
            self._left = permutation(self._stream, self.records)
        batch, self._left = self._left[: self.batch_size], self._left[self.batch_size :]
        return Batch(np.sort(batch))

    def state(self) -> dict[str, Any]:
        """The records that this pass has yet to issue; their order amplifies nothing, so it is not secret."""
        return super().state() | {"left": self._left}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue the pass where `state` was taken."""
        super().restore(state)
        self._left = state["left"]
