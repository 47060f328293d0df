"""Poisson sampling: every record enters every batch independently with the same probability.

Truncated Poisson sampling bounds the batch size, for a fixed amount of memory and graphs of one shape.

User-level sampling: Poisson over users, each with all their records.

Fixed-size sampling: batches of one size, drawn without replacement, independently at every step.

Shuffled sampling: disjoint batches of shuffled records, every record once in each pass.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.errors import InvalidInput
from tacit.mechanisms import FixedSize, Gaussian, Mechanism, Shuffled, TruncatedPoisson
from tacit.noise import SecureStream, Stream
from tacit.noise.discrete import uniform_integers
from tacit.relation import Relation
from tacit.sampling.base import Batch, ExactSizeSampler, Sampler, Sampling, exact_batch_size


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
        drawn = np.concatenate([found, uniform_integers(stream, records, size - len(found) + 8)])
        found = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    return np.sort(found[:size])


def permutation(stream: Stream, records: int) -> NDArray[np.int64]:
    """0..records-1 in the order of as many random 64-bit words: uniform, up to ties of chance records^2 / 2^65."""
    return np.argsort(stream.bits(records))


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


@dataclass(frozen=True)
class PoissonSampling(Sampling):
    """Every record independently with probability `sample_rate`; the exact accounting of Poisson subsampling.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> PoissonSampling().mechanism(Gaussian(1.0), 100, 0.1) == Gaussian(1.0).poisson(0.1)
        True
    """

    type: ClassVar[str] = "poisson"
    uniform: ClassVar[bool] = True

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> PoissonSampler:
        """A Poisson sampler."""
        return PoissonSampler(records, sample_rate, stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`base` under Poisson subsampling."""
        return base.poisson(sample_rate)


class PoissonSampler(Sampler):
    """Poisson batches, their records in ascending order.

    Args:
        records: number of records, >= 1.
        sample_rate: in (0, 1]; the probability of each record in each batch.
        stream: source of the random bits; a new `SecureStream` by default.

    Example:
        >>> from tacit.noise import SeededStream
        >>> PoissonSampler(1000, 0.1, SeededStream(0)).expected_size
        100.0
    """

    def __init__(self, records: int, sample_rate: float, stream: Stream | None = None):
        self.records = check.count("records", records)
        self.sample_rate = check.probability("sample_rate", sample_rate, open_low=True, hint="Use batch_size / n.")
        self.expected_size = self.records * self.sample_rate
        self.stream = stream if stream is not None else SecureStream()

    def draw(self) -> Batch:
        """A fresh Poisson sample."""
        return Batch(bernoulli(self.stream, self.records, self.sample_rate))


def bernoulli(stream: Stream, records: int, rate: float | Fraction) -> NDArray[np.int64]:
    """Positions of the successes of `records` independent trials of probability exactly `rate`, in ascending order.

    A random byte below 256 rate is a success; where it equals the integer part, the fraction decides in the same way.

    Args:
        stream: source of the bits.
        records: number of trials, >= 0.
        rate: in (0, 1]; a float stands for the rational number that it is.

    Example:
        >>> from tacit.noise import SeededStream
        >>> bernoulli(SeededStream(0), 3, 1.0).tolist()
        [0, 1, 2]
    """
    if rate == 1 or not records:
        return np.arange(records)
    whole, fraction = _first_byte(rate)
    bytes_ = stream.bits(-(-records // 8)).view(np.uint8)[:records]
    # All that follows is on these few.
    places = (bytes_ <= whole).nonzero()[0]
    chosen = bytes_[places] < whole
    undecided = (~chosen).nonzero()[0] if fraction else ()
    if len(undecided):
        chosen[undecided[bernoulli(stream, len(undecided), fraction)]] = True
    return places[chosen]


@lru_cache(maxsize=256)
def _first_byte(rate: float | Fraction) -> tuple[int, Fraction]:
    """Integer part and fraction of 256 rate."""
    whole, fraction = divmod(Fraction(rate) * 256, 1)
    return int(whole), fraction


@dataclass(frozen=True)
class TruncatedPoissonSampling(Sampling):
    """Poisson samples of which a uniform subset of `cap` is kept where there are more; see `TruncatedPoisson`.

    For expected batch sizes of a few hundred, a cap of 1.3 times that costs almost no privacy; a cap near it does.

    Args:
        cap: the largest number of records of a batch, >= 1.

    Example:
        >>> TruncatedPoissonSampling(64).spec()
        {'type': 'truncated_poisson', 'cap': 64}
    """

    type: ClassVar[str] = "truncated_poisson"
    uniform: ClassVar[bool] = True
    reads_records: ClassVar[bool] = True
    cap: int

    def __post_init__(self) -> None:
        check.count("cap", self.cap)

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> TruncatedPoissonSampler:
        """A truncated Poisson sampler."""
        return TruncatedPoissonSampler(records, sample_rate, self.cap, stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`TruncatedPoisson` of `base`; raises `InvalidInput` unless that is Gaussian."""
        if not isinstance(base, Gaussian):
            raise InvalidInput(f"truncated_poisson sampling must be used with Gaussian noise; got {base}.")
        return TruncatedPoisson(base, sample_rate, records, self.cap)

    def spec(self) -> dict[str, Any]:
        """JSON form."""
        return {"type": self.type, "cap": self.cap}


class TruncatedPoissonSampler(Sampler):
    """Poisson batches, each cut down to a uniform subset of `cap` records where it has more.

    Args:
        records: number of records, >= 1.
        sample_rate: in (0, 1]; `expected_size` is that of the whole sample.
        cap: >= 1.
        stream: source of the random bits; a new `SecureStream` by default.

    Example:
        >>> from tacit.noise import SeededStream
        >>> len(TruncatedPoissonSampler(1000, 0.5, 10, SeededStream(0)).draw())
        10
    """

    def __init__(self, records: int, sample_rate: float, cap: int, stream: Stream | None = None):
        self._poisson = PoissonSampler(records, sample_rate, stream)
        self.cap = check.count("cap", cap)
        self.expected_size = self._poisson.expected_size

    def draw(self) -> Batch:
        """A fresh Poisson sample, cut down to `cap` records."""
        batch = self._poisson.draw()
        if len(batch) <= self.cap:
            return batch
        return Batch(batch.indices[subset(self._poisson.stream, len(batch), self.cap)])


class GroupedPoissonSampling(Sampling):
    """Every user independently with probability `sample_rate`; the gradients of a user are clipped together.

    The privacy unit is a user with all their records, however many: the ledger's unit is "user", and batch sizes,
    rates and 1/n count users. The gradient of a user is the sum of their per-sample gradients, or its mean.

    Args:
        groups: the user of every record, as any key.
        average: whether to take the mean of a user's gradients instead of their sum before clipping.

    Example:
        >>> GroupedPoissonSampling(["ann", "bob", "ann"]).units(3)
        2
    """

    type: ClassVar[str] = "grouped_poisson"
    uniform: ClassVar[bool] = True
    unit: ClassVar[str] = "user"
    assumptions: ClassVar[tuple[str, ...]] = (
        "The number of users is public.",
        "All runs in this ledger assign records to the same users.",
    )

    def __init__(self, groups: Sequence[object] | NDArray[Any], *, average: bool = False):
        keys = np.asarray(groups)
        if keys.ndim != 1 or not len(keys):
            raise check.fail("groups", "one key for each record", f"shape {keys.shape}")
        self.owners: NDArray[np.int64] = np.unique(keys, return_inverse=True)[1].astype(np.int64)
        self.average = average

    def units(self, records: int) -> int:
        """Number of users; raises `InvalidInput` unless there is one key for each record."""
        if len(self.owners) != records:
            raise check.fail("groups", f"one key for each of the {records} records", f"{len(self.owners)} keys")
        return int(self.owners.max()) + 1

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> GroupedPoissonSampler:
        """A Poisson sampler of users."""
        self.units(records)
        return GroupedPoissonSampler(self.owners, sample_rate, average=self.average, stream=stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`base` under Poisson subsampling of users."""
        return base.poisson(sample_rate)

    def grouping(self, key: bytes) -> str:
        """Keyed hash of the number of records and the partition into users, whatever the users are called."""
        _, first, numbers = np.unique(self.owners, return_index=True, return_inverse=True)
        by_appearance = np.argsort(np.argsort(first))[numbers].astype("<i8")
        return f"{len(self.owners)}:{hashlib.blake2b(by_appearance.tobytes(), key=key, digest_size=16).hexdigest()}"

    def spec(self) -> dict[str, Any]:
        """JSON form, without any user's key."""
        return {"type": self.type, "average": self.average}


class GroupedPoissonSampler(Sampler):
    """Batches of all records of a Poisson sample of users.

    Args:
        owners: user of every record, integers 0..users-1, each at least once.
        sample_rate: in (0, 1]; the probability of each user in each batch.
        average: whether the gradient of a user is the mean of their records' instead of their sum.
        stream: source of the random bits; a new `SecureStream` by default.

    Example:
        >>> from tacit.noise import SeededStream
        >>> GroupedPoissonSampler(np.array([0, 1, 0]), 1.0, stream=SeededStream(0)).draw().owners.tolist()
        [0, 0, 1]
    """

    def __init__(
        self, owners: NDArray[np.int64], sample_rate: float, *, average: bool = False, stream: Stream | None = None
    ):
        self.sample_rate = check.probability("sample_rate", sample_rate, open_low=True, hint="Use batch_size / users.")
        self._order = np.argsort(owners, kind="stable")
        self._sizes = np.bincount(owners)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._average = average
        self.users = len(self._sizes)
        self.expected_size = self.users * self.sample_rate
        self._stream = stream if stream is not None else SecureStream()

    def draw(self) -> Batch:
        """All records of a fresh Poisson sample of users."""
        users = bernoulli(self._stream, self.users, self.sample_rate)
        sizes = self._sizes[users]
        owners = np.repeat(np.arange(len(users)), sizes)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return Batch(self._order[self._starts[users][owners] + within], owners, self._average)
