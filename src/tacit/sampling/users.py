"""User-level sampling: Poisson over the owners of records, each with all their records."""

from __future__ import annotations

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
    """Every user independently with probability `sample_rate`; all records of a user are clipped as one.

    What is protected is a user with all their records, however many: the ledger's unit is "user", and batch sizes,
    rates and 1/n count users. The gradient of a user is the sum of their records', or its mean.

    Args:
        groups: one key for each record: whose it is.
        average: whether to take the mean of a user's gradients instead of their sum before clipping.
    """

    type: ClassVar[str] = "grouped_poisson"
    unit: ClassVar[str] = "user"
    assumptions: ClassVar[tuple[str, ...]] = ("The number of users is public.",)

    def __init__(self, groups: Sequence[object] | NDArray[Any], *, average: bool = False):
        keys = np.asarray(groups)
        if keys.ndim != 1 or not len(keys):
            raise check.fail("groups", "one key for each record", f"shape {keys.shape}")
        self.owners: NDArray[np.int64] = np.unique(keys, return_inverse=True)[1].astype(np.int64)
        self.average = average

    def units(self, records: int) -> int:
        if len(self.owners) != records:
            raise check.fail("groups", f"one key for each of the {records} records", f"{len(self.owners)} keys")
        return int(self.owners.max()) + 1

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> GroupedPoissonSampler:
        self.units(records)
        return GroupedPoissonSampler(self.owners, sample_rate, average=self.average, stream=stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        return base.poisson(sample_rate)

    def spec(self) -> dict[str, Any]:
        return {"type": self.type, "average": self.average}


class GroupedPoissonSampler(Sampler):
    """Batches of all records of a Poisson sample of users.

    Args:
        owners: user of every record, integers 0..users-1, each at least once.
        sample_rate: in (0, 1]; the probability of each user in each batch.
        average: passed on with every batch.
        stream: source of the random bits; a new `SecureStream` by default.
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
        users = bernoulli(self._stream, self.users, self.sample_rate)
        sizes = self._sizes[users]
        owners = np.repeat(np.arange(len(users)), sizes)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return Batch(self._order[self._starts[users][owners] + within], owners, self._average)
