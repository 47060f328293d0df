"""Parallel composition: mechanisms on disjoint parts of the records, every record in exactly one part.

A menu: stages at each of which one of finitely many declared mechanisms is picked, after seeing what came before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.mechanisms.base import Compose, Mechanism
from tacit.relation import Relation


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
        check.that(len(self.branches) >= 2, "branches", "two or more mechanisms", len(self.branches))
        check.count("split", self.split, minimum=0)

    @classmethod
    def of(cls, *branches: Mechanism) -> Parallel:
        """Branches given as any mechanisms."""
        return cls(tuple(Compose.of((branch, 1)) for branch in branches))

    def options(self) -> tuple[Mechanism, ...]:
        """Return the branches."""
        return self.branches

    def inside(self) -> Iterator[Mechanism]:
        """Return the branches."""
        return iter(self.branches)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        rows = [branch.rows() for branch in self.branches]
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


@dataclass(frozen=True)
class Menu(Mechanism):
    """One option of every stage, each picked when the outputs of earlier stages are known.

    With V_0(x) = (1 - e^x)_+ and V_k(x) = max_j E_{L ~ P_j} V_{k - 1}(x - L) plus the mass of infinite loss, the delta
    of the worst adaptive choice is V_K(epsilon), because V_k is convex in e^x and an option's dominating pair is at
    least as bad for every such function. `pld` computes it; order-wise Renyi divergences add up with the largest option
    of each stage.

    Args:
        stages: one or more, each with one or more options; to stop early costs nothing and needs no option.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> print(Menu.of([Gaussian(1.0), Gaussian(2.0) * 4], [Gaussian(3.0)]))
        menu of (Gaussian(1) or Gaussian(2) * 4), then (Gaussian(3))
    """

    type: ClassVar[str] = "menu"
    takes_samples: ClassVar[bool] = False
    stages: tuple[tuple[Compose, ...], ...]

    def __post_init__(self) -> None:
        if not self.stages or not all(self.stages):
            raise check.fail(
                "stages", "one or more lists of one or more mechanisms", [len(each) for each in self.stages]
            )

    @classmethod
    def of(cls, *stages: list[Mechanism]) -> Menu:
        """Options given as any mechanisms."""
        return cls(tuple(tuple(Compose.of((option, 1)) for option in stage) for stage in stages))

    def inside(self) -> Iterator[Mechanism]:
        """Return the parts of all options."""
        return (part for stage in self.stages for option in stage for part in option.inside())

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Return the `unsafe_` switches of all options."""
        return tuple(dict.fromkeys(switch for part in self.inside() for switch in part.unsafe))

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return the sum over stages of the largest D_a of an option, for each order (Feldman & Zrnic 2021)."""
        worst = [[option.accountable().rdp(orders, relation) for option in stage] for stage in self.stages]
        return np.sum([np.max(stage, axis=0) for stage in worst], axis=0)

    def pure_epsilon(self, relation: Relation) -> float:
        """Return the sum over stages of the largest pure epsilon of an option."""
        worst = (max(option.accountable().pure_epsilon(relation) for option in stage) for stage in self.stages)
        return float(sum(worst))

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"type": self.type, "stages": [[option.rows() for option in stage] for stage in self.stages]}

    def __str__(self) -> str:
        stages = ("(" + " or ".join(str(option) for option in stage) + ")" for stage in self.stages)
        return "menu of " + ", then ".join(stages)
