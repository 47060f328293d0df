"""Parallel composition: mechanisms on disjoint parts of the records, every record in exactly one part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tacit import check
from tacit.mechanisms.base import Compose, Mechanism


@dataclass(frozen=True)
class Parallel(Mechanism):
    """One branch for each part of the records.

    The part of a record depends on the record alone or on a coin of its own. A record meets one branch only, so the
    guarantee is that of the worst branch (McSherry 2009, Theorem 4): accountants ask for every branch in the place of
    this mechanism and keep the largest answer. Where it runs more than once, the parts are the same each time; another
    `split` says that they are others. Under replace_one the new record takes the old one's part.

    Args:
        branches: two or more mechanisms, each perhaps a composition.
        split: number of the division into parts; equal branches of different divisions are different mechanisms.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> print(Parallel.of(Gaussian(1.0), Gaussian(2.0) * 3))
        (Gaussian(1) | Gaussian(2) * 3)
    """

    type: ClassVar[str] = "parallel"
    branches: tuple[Compose, ...]
    split: int = 0

    def __post_init__(self) -> None:
        if len(self.branches) < 2:
            raise check.fail("branches", "two or more mechanisms", len(self.branches))
        check.count("split", self.split, minimum=0)

    @classmethod
    def of(cls, *branches: Mechanism) -> Parallel:
        """Branches given as any mechanisms."""
        return cls(tuple(Compose.of((branch, 1)) for branch in branches))

    def options(self) -> tuple[Mechanism, ...]:
        """Return the branches."""
        return self.branches

    def series_taken(self) -> int:
        """Return one above the highest number of a series in the mechanism."""
        return max(branch.series_taken() for branch in self.branches)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        rows = [[part.spec() | {"steps": times} for part, times in branch.parts()] for branch in self.branches]
        return {"type": self.type, "branches": rows} | ({"split": self.split} if self.split else {})

    def __str__(self) -> str:
        return "(" + " | ".join(str(branch) for branch in self.branches) + ")"


def alternatives(mechanism: Compose) -> list[Compose]:
    """`mechanism` with every `Parallel` replaced by one of its branches, in every different combination.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> split = Parallel.of(Gaussian(1.0), Gaussian(2.0))
        >>> [str(choice) for choice in alternatives(Compose.of((split, 1)))]
        ['Gaussian(1)', 'Gaussian(2)']
    """
    found: list[list[tuple[Mechanism, int]]] = [[]]
    for part, times in mechanism.parts():
        found = [[*chosen, (choice, times)] for chosen in found for choice in part.options()]
    composed = (Compose.of(*chosen) for chosen in found)
    return [*{frozenset(each.steps): each for each in composed}.values()]
