"""Any mechanism known only by one (epsilon, delta)."""

from dataclasses import dataclass
from typing import ClassVar

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import AtomPair, Pair
from tacit.relation import Relation


@dataclass(frozen=True)
class Approximate(Mechanism):
    """A mechanism that is (epsilon, delta)-DP under the relation of the ledger, nothing else known."""

    type: ClassVar[str] = "approximate"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.epsilon(self.epsilon)
        check.probability("delta", self.delta, open_high=True)

    def pure_epsilon(self, relation: Relation) -> float:
        if self.delta > 0:
            raise self.refusal("pure epsilon", relation)
        return self.epsilon

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        return self.epsilon if delta >= self.delta else float("inf")

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Randomised response that with probability delta reveals all (Kairouz, Oh & Viswanath 2015)."""
        return (AtomPair.response(self.epsilon, self.delta),)

    def __str__(self) -> str:
        return f"Approximate({self.epsilon:g}, {self.delta:g})"
