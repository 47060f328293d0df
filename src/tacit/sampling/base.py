"""`Sampling`, the description of how batches are drawn, and `Sampler`, which draws them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.errors import InvalidInput, TrainingMisuse
from tacit.mechanisms import Mechanism
from tacit.noise import SecureStream, Stream
from tacit.relation import Relation


@dataclass(frozen=True, eq=False)
class Batch:
    """The records of one batch, each once. Batches are compared by identity: an issued batch is its own token.

    Attributes:
        indices: the records.
        owners: unit of every record, numbered 0, 1, ... within the batch; None where every record is its own unit.
        average: whether the gradient of a unit is the mean of its records' instead of their sum.

    Example:
        >>> len(Batch(np.array([2, 5])))
        2
    """

    indices: NDArray[np.int64]
    owners: NDArray[np.int64] | None = None
    average: bool = False

    def __len__(self) -> int:
        return len(self.indices)


class Sampler(ABC):
    """Issues batches and takes each back exactly once, so that only what it drew can be trained on.

    A batch that was issued but not used is issued again. Leaving a batch out, or reading one before training, therefore
    cannot change the distribution that the accountant assumes.

    Attributes:
        expected_size: mean number of privacy units (records, or users) in a batch.
        interrupted: whether `restore` found an unfinished pass that it could not go on with, and began a new one.

    Example:
        >>> from tacit.sampling.poisson import FixedSizeSampler
        >>> sampler = FixedSizeSampler(10, 2)
        >>> batch = sampler.issue()
        >>> sampler.redeem(batch)
    """

    expected_size: float
    interrupted: bool = False
    _open: Batch | None = None

    @abstractmethod
    def draw(self) -> Batch:
        """A fresh batch."""

    def issue(self) -> Batch:
        """The batch to train on next; the same one until it has been redeemed."""
        if self._open is None:
            self._open = self.draw()
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
        """What a checkpoint keeps besides the stream's position; raises `TrainingMisuse` while a batch is open.

        Who is in a batch that is still to be trained on must stay secret, so it is never written down.
        """
        if self._open is not None:
            raise TrainingMisuse("a checkpoint must be taken between steps; got one while a batch is open.")
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._open = None


class ExactSizeSampler(Sampler):
    """A sampler whose batches have one size.

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


class Sampling(ABC):
    """How batches are drawn, whatever the data: it makes the sampler and gives the mechanism of a step.

    Attributes:
        type: name in configurations and in the JSON form.
        unit: the privacy unit, which is sampled and protected as a whole.
        relations: neighbouring relations under which a mechanism covers it.
        assumptions: facts that its accounting assumes besides the code, for the ledger.
        uniform: whether all records take part, with equal chances, so that the batches of a run can be tested for it.
        separates: whether it keeps a record's steps apart, as correlated noise needs; its mechanism is one of a run.
        reads_records: whether its mechanism tells the number of records, whatever the rate.
        whole_run: whether its mechanism is one of a run of known length, also with independent noise alone.

    Example:
        >>> from tacit.sampling import sampling_of
        >>> sampling_of("poisson").spec()
        {'type': 'poisson'}
    """

    type: ClassVar[str]
    unit: ClassVar[str] = "record"
    relations: ClassVar[tuple[Relation, ...]] = tuple(Relation)
    assumptions: ClassVar[tuple[str, ...]] = ()
    uniform: ClassVar[bool] = False
    separates: ClassVar[bool] = False
    whole_run: ClassVar[bool] = False
    reads_records: ClassVar[bool] = False

    def grouping(self, key: bytes) -> str:
        """Keyed hash of which records form a unit; empty where every record is its own."""
        return ""

    @abstractmethod
    def sampler(self, records: int, sample_rate: float, stream: Stream) -> Sampler:
        """A sampler of `records` records, each unit in a batch with probability `sample_rate` in (0, 1]."""

    @abstractmethod
    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """The mechanism of one step of `base` on such a batch."""

    def in_series(self, number: int) -> Sampling:
        """This sampling as series `number` of its kind on a ledger; the same unless the order of batches matters."""
        return replace(self, series=number) if hasattr(self, "series") else self  # type: ignore[type-var]

    def for_bands(self, bands: int) -> Sampling:
        """This sampling with a record's steps so far apart, where that was left open."""
        return self

    def for_steps(self, steps: int) -> Sampling:
        """This sampling for a run of so many steps, where that matters."""
        return self

    def units(self, records: int) -> int:
        """Number of privacy units that the records belong to."""
        return records

    def steps_alike(self, records: int, sample_rate: float) -> int:
        """Number of steps in a row that need equal noise; 1 where noise may change at any step."""
        return 1

    def check_relation(self, relation: Relation) -> None:
        """Raise `InvalidInput` for a relation that is not among `relations`."""
        if relation not in self.relations:
            names = " or ".join(each.value for each in self.relations)
            raise InvalidInput(
                f"relation must be {names} for {self.type} sampling; got {relation.value}. "
                f'Pass ledger=Ledger(relation="{self.relations[0].value}").'
            )

    def spec(self) -> dict[str, Any]:
        """JSON form, without any record's key."""
        return {"type": self.type}


def exact_batch_size(records: int, sample_rate: float) -> int:
    """The product records * sample_rate as an integer >= 1; raises `InvalidInput` where it is not one."""
    size = records * sample_rate
    # A rate of batch_size / records is a rounded quotient; its error is far below this.
    if round(size) < 1 or abs(size - round(size)) > 1e-6:
        raise check.fail("batch_size", f"an integer in [1, {records}]", size, "Batches have exactly this size.")
    return round(size)


def epoch_steps(sample_rate: float) -> int:
    """Steps of an epoch in which each record takes part in one, at this rate or less: ceil(1 / sample_rate)."""
    # A rate of 1 / T is a rounded quotient, whose inverse may exceed T by a few units.
    return math.ceil(1 / sample_rate * (1 - 1e-12))
