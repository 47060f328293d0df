"""Poisson batches of bounded size, for memory that must not run out and graphs of one shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tacit import check
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian, Mechanism, TruncatedPoisson
from tacit.noise import Stream
from tacit.relation import Relation
from tacit.sampling.base import Batch, Sampler, Sampling
from tacit.sampling.fixed_size import subset
from tacit.sampling.poisson import PoissonSampler


@dataclass(frozen=True)
class TruncatedPoissonSampling(Sampling):
    """Poisson samples of which a uniform subset of `cap` is kept where there are more; see `TruncatedPoisson`.

    A cap of 1.3 expected batches is as good as free for batches of a few hundred; a cap near the expected batch is not.

    Args:
        cap: the largest number of records of a batch, >= 1.
    """

    type: ClassVar[str] = "truncated_poisson"
    relations: ClassVar[tuple[Relation, ...]] = (Relation.ADD_REMOVE, Relation.REPLACE_ONE)
    cap: int

    def __post_init__(self) -> None:
        check.count("cap", self.cap)

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> TruncatedPoissonSampler:
        return TruncatedPoissonSampler(records, sample_rate, self.cap, stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        if not isinstance(base, Gaussian):
            raise InvalidInput(f"truncated_poisson sampling must be used with Gaussian noise; got {base}.")
        return TruncatedPoisson(base, sample_rate, records, self.cap)

    def spec(self) -> dict[str, Any]:
        return {"type": self.type, "cap": self.cap}


class TruncatedPoissonSampler(Sampler):
    """Poisson batches, each cut down to a uniform subset of `cap` records where it has more.

    Args:
        records, sample_rate: as in `PoissonSampler`; `expected_size` is that of the whole sample.
        cap: >= 1.
        stream: source of the random bits; a new `SecureStream` by default.
    """

    def __init__(self, records: int, sample_rate: float, cap: int, stream: Stream | None = None):
        self._poisson = PoissonSampler(records, sample_rate, stream)
        self.cap = check.count("cap", cap)
        self.expected_size = self._poisson.expected_size

    def draw(self) -> Batch:
        batch = self._poisson.draw()
        if len(batch) <= self.cap:
            return batch
        return Batch(batch.indices[subset(self._poisson.stream, len(batch), self.cap)])
