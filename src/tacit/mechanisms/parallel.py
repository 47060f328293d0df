"""Parallel composition: mechanisms on disjoint parts of the records, every record in exactly one part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.compose import Compose


@dataclass(frozen=True)
class Parallel(Mechanism):
    """One branch for each part of the records; which part a record belongs to depends on the record alone.

    A record meets one branch only, so the guarantee is that of the worst branch (McSherry 2009, Theorem 4): accountants
    ask for every branch in the place of this mechanism and keep the largest answer. Where it runs more than once, the
    parts are the same each time. Under replace_one the new record takes the old one's part.

    Args:
        branches: two or more mechanisms, each perhaps a composition.
    """

    type: ClassVar[str] = "parallel"
    branches: tuple[Compose, ...]

    def __post_init__(self) -> None:
        if len(self.branches) < 2:
            raise check.fail("branches", "two or more mechanisms", len(self.branches))

    @classmethod
    def of(cls, *branches: Mechanism) -> Parallel:
        """Branches given as any mechanisms."""
        return cls(tuple(Compose.of((branch, 1)) for branch in branches))

    def series_taken(self) -> int:
        return max(branch.series_taken() for branch in self.branches)

    def spec(self) -> dict[str, Any]:
        rows = [[part.spec() | {"steps": times} for part, times in branch.parts()] for branch in self.branches]
        return {"type": self.type, "branches": rows}

    def __str__(self) -> str:
        return "(" + " | ".join(str(branch) for branch in self.branches) + ")"


def alternatives(mechanism: Compose) -> list[Compose]:
    """`mechanism` with every `Parallel` replaced by one of its branches, in every combination."""
    found: list[list[tuple[Mechanism, int]]] = [[]]
    for part, times in mechanism.parts():
        choices: tuple[Mechanism, ...] = part.branches if isinstance(part, Parallel) else (part,)
        found = [[*chosen, (choice, times)] for chosen in found for choice in choices]
    return [Compose.of(*chosen) for chosen in found]
