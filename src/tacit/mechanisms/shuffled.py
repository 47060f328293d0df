"""Disjoint batches: the records are shuffled and dealt out, every one once in each pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.fixed_size import check_batches


@dataclass(frozen=True)
class Shuffled(Mechanism):
    """One step of `base` on a batch of a partition of the records, passes following one another.

    A record is in one batch of each pass, so steps * batch_size / records passes, rounded up, are as many runs
    of `base` with the record and nothing else, whatever the order of the batches: no amplification is claimed. The
    guarantee rests on passes that visit every record before any is visited again; under add/remove a missing record is
    one that adds nothing (a placeholder). Steps of one series add up before they are rounded up to passes; two
    series, such as those of two runs, may each hold a record in a pass they have only begun, so each is rounded up.

    Args:
        base: the mechanism that runs on a batch; not itself subsampled or composed.
        records: > 0, the number of records of a pass.
        batch_size: in [1, records].
        series: >= 0, number of the uninterrupted series of passes that the step belongs to.
    """

    type: ClassVar[str] = "shuffled"
    base: Mechanism
    records: int
    batch_size: int
    series: int = 0

    @property
    def unsafe(self) -> tuple[str, ...]:
        return self.base.unsafe

    def __post_init__(self) -> None:
        check_batches(self)
        check.count("series", self.series, minimum=0)

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(base, passes begun): ceil(steps * batch_size / records) runs of `base`."""
        return self.base, -(-steps * self.batch_size // self.records)

    def series_taken(self) -> int:
        return self.series + 1

    def spec(self) -> dict[str, Any]:
        sampling = {"sampling": self.type, "records": self.records, "batch_size": self.batch_size}
        # The first series goes unnamed, as in ledgers that were written before series were told apart.
        return self.base.spec() | sampling | ({"series": self.series} if self.series else {})

    def __str__(self) -> str:
        named = f", series {self.series}" if self.series else ""
        return f"{self.base}.shuffled({self.batch_size} of {self.records}{named})"
