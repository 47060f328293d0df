"""Composition: several mechanisms run one after another on the same records (adaptively).

Parallel composition: mechanisms on disjoint parts of the records, every record in exactly one part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.relation import Relation


@dataclass(frozen=True)
class Compose(Mechanism):
    """Unlike steps with their counts; equal steps are merged, so order is not kept (privacy needs none)."""

    type: ClassVar[str] = "compose"
    steps: tuple[tuple[Mechanism, int], ...]

    @classmethod
    def of(cls, *counted: tuple[Mechanism, int]) -> Compose:
        """The composition of `(mechanism, count)` pairs, flattened and merged."""
        merged: dict[Mechanism, int] = {}
        for mechanism, times in counted:
            for part, inner in mechanism.parts():
                merged[part] = merged.get(part, 0) + inner * times
        return cls(tuple(merged.items()))

    def parts(self) -> Iterator[tuple[Mechanism, int]]:
        yield from self.steps

    def series_taken(self) -> int:
        return max((part.series_taken() for part, _ in self.steps), default=0)

    def accountable(self) -> Compose:
        """The composition that accountants read, disjoint batches counted by the passes of each series."""
        return Compose.of(*(part.accounted(times) for part, times in self.steps))

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        total = np.zeros(np.shape(orders))
        for part, times in self.steps:
            total = total + times * part.rdp(orders, relation)
        return total

    def published_generic_rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        return np.sum([times * part.published_generic_rdp(orders, relation) for part, times in self.steps], axis=0)

    def cdp(self, relation: Relation) -> tuple[float, float]:
        """Means add up, deviations add up in squares (Dwork & Rothblum 2016, Theorem 3.4)."""
        each = [(part.cdp(relation), times) for part, times in self.steps]
        mean = sum(times * mean for (mean, _), times in each)
        return float(mean), float(sum(times * deviation**2 for (_, deviation), times in each)) ** 0.5

    def pure_epsilon(self, relation: Relation) -> float:
        return float(sum(times * part.pure_epsilon(relation) for part, times in self.steps))

    def zcdp(self, relation: Relation) -> float:
        return float(sum(times * part.zcdp(relation) for part, times in self.steps))

    def mu(self, relation: Relation) -> float:
        return float(sum(times * part.mu(relation) ** 2 for part, times in self.steps)) ** 0.5

    def clt_mu_squared(self, relation: Relation) -> float:
        return float(sum(times * part.clt_mu_squared(relation) for part, times in self.steps))

    def spec(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "mechanisms": [part.spec() | {"steps": times} for part, times in self.steps],
        }

    def __str__(self) -> str:
        return " + ".join(f"{part} * {times}" if times > 1 else str(part) for part, times in self.steps) or "nothing"


@dataclass(frozen=True)
class Parallel(Mechanism):
    """One branch for each part of the records; which part a record belongs to depends on the record alone
    or on a coin of its own.

    A record meets one branch only, so the guarantee is that of the worst branch (McSherry 2009, Theorem 4): accountants
    ask for every branch in the place of this mechanism and keep the largest answer. Where it runs more than once, the
    parts are the same each time; another `split` says that they are others. Under replace_one the new record takes the
    old one's part.

    Args:
        branches: two or more mechanisms, each perhaps a composition.
        split: number of the division into parts; equal branches of different divisions are different mechanisms.
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

    def series_taken(self) -> int:
        return max(branch.series_taken() for branch in self.branches)

    def spec(self) -> dict[str, Any]:
        rows = [[part.spec() | {"steps": times} for part, times in branch.parts()] for branch in self.branches]
        return {"type": self.type, "branches": rows} | ({"split": self.split} if self.split else {})

    def __str__(self) -> str:
        return "(" + " | ".join(str(branch) for branch in self.branches) + ")"


def alternatives(mechanism: Compose) -> list[Compose]:
    """`mechanism` with every `Parallel` replaced by one of its branches, in every different combination."""
    found: list[list[tuple[Mechanism, int]]] = [[]]
    for part, times in mechanism.parts():
        choices: tuple[Mechanism, ...] = part.branches if isinstance(part, Parallel) else (part,)
        found = [[*chosen, (choice, times)] for chosen in found for choice in choices]
    composed = (Compose.of(*chosen) for chosen in found)
    return [*{frozenset(each.steps): each for each in composed}.values()]
