"""User-level sampling: Poisson over users, each with all their records."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.mechanisms import Mechanism
from tacit.noise import SecureStream, Stream
from tacit.sampling.base import Batch, Sampler, Sampling
from tacit.sampling.poisson import bernoulli


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
