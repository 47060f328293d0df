"""Disjoint batches: the records are shuffled and dealt out, every one once in each pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.fixed_size import check_batches


@dataclass(frozen=True)
class Shuffled(Mechanism):
    """One step of `base` on a batch of a partition of the records, passes following one another.

    A record is in one batch of each pass, so steps * batch_size / records passes, rounded up, are as many runs
    of `base` with the record and nothing else, whatever the order of the batches: no amplification is claimed. The
    guarantee rests on passes that visit every record before any is visited again, and on one uninterrupted
    series of passes; under add/remove a missing record is one that adds nothing (a placeholder).

    Args:
        base: the mechanism that runs on a batch; not itself subsampled or composed.
        records: > 0, the number of records of a pass.
        batch_size: in [1, records].
    """

    type: ClassVar[str] = "shuffled"
    base: Mechanism
    records: int
    batch_size: int

    @property
    def unsafe(self) -> tuple[str, ...]:
        return self.base.unsafe

    def __post_init__(self) -> None:
        check_batches(self)

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(base, passes begun): ceil(steps * batch_size / records) runs of `base`."""
        return self.base, -(-steps * self.batch_size // self.records)

    def spec(self) -> dict[str, Any]:
        sampling = {"sampling": self.type, "records": self.records, "batch_size": self.batch_size}
        return self.base.spec() | sampling

    def __str__(self) -> str:
        return f"{self.base}.shuffled({self.batch_size} of {self.records})"
