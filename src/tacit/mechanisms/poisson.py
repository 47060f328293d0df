"""Poisson subsampling: every record enters a step independently with the same probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import Pair
from tacit.relation import Relation


@dataclass(frozen=True)
class Poisson(Mechanism):
    """`base` run on a Poisson sample of the records.

    Args:
        base: the mechanism that runs on the sample; not itself subsampled or composed.
        sample_rate: in (0, 1]; the probability of each record.
    """

    type: ClassVar[str] = "poisson"
    base: Mechanism
    sample_rate: float

    @property
    def unsafe(self) -> tuple[str, ...]:
        return self.base.unsafe

    def __post_init__(self) -> None:
        check.probability("sample_rate", self.sample_rate, open_low=True, hint="Use batch_size / n.")
        if self.base.type in ("poisson", "compose", "fixed_size", "shuffled", "truncated_poisson"):
            raise InvalidInput(f"poisson must be applied to one unsampled mechanism; got {self.base}.")

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        if self.sample_rate == 1.0:
            return self.base.rdp(orders, relation)
        return self.base.poisson_rdp(self.sample_rate, orders, relation)

    def pure_epsilon(self, relation: Relation) -> float:
        return self._amplified(self.base.pure_epsilon(relation), relation)

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        if relation is Relation.REPLACE_ONE:
            return self.base.epsilon_at(delta, relation)
        return self._amplified(self.base.epsilon_at(min(delta / self.sample_rate, 1.0), relation), relation)

    def classical_epsilon(self, delta: float, relation: Relation) -> float:
        if relation is Relation.REPLACE_ONE:
            return self.base.classical_epsilon(delta, relation)
        return self._amplified(self.base.classical_epsilon(min(delta / self.sample_rate, 1.0), relation), relation)

    def _amplified(self, epsilon: float, relation: Relation) -> float:
        """log(1 + p (e^eps - 1)) under add/remove, with delta times p (Balle, Barthe & Gaboardi 2018, Thm 8).

        Under replace-one the other world samples an unlike record instead of none, so nothing is gained here.
        """
        if relation is Relation.REPLACE_ONE:
            return epsilon
        if epsilon > 700.0:
            return epsilon + math.log(self.sample_rate) + 1e-12
        return math.log1p(self.sample_rate * math.expm1(epsilon))

    def cdp(self, relation: Relation) -> tuple[float, float]:
        """Unsampled, as for zCDP."""
        return self.base.cdp(relation)

    def published_generic_rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """q^2 D_a of the unsampled mechanism: asserted by the paper, false at every order."""
        return self.sample_rate**2 * self.base.rdp(orders, relation)

    def zcdp(self, relation: Relation) -> float:
        """Subsampling helps zCDP by nothing that holds for every order, so this is the unsampled rho."""
        return self.base.zcdp(relation)

    def mu(self, relation: Relation) -> float:
        if self.sample_rate == 1.0:
            return self.base.mu(relation)
        raise Refused(f"{self} is not exactly GDP for any mu; ask clt for the limit or pld for the exact curve.")

    def clt_mu_squared(self, relation: Relation) -> float:
        if self.sample_rate == 1.0:
            return self.base.clt_mu_squared(relation)
        return self.base.poisson_clt_mu_squared(self.sample_rate, relation)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        if self.sample_rate == 1.0:
            return self.base.dominating_pairs(relation)
        return self.base.poisson_pairs(self.sample_rate, relation)

    def spec(self) -> dict[str, Any]:
        return self.base.spec() | {"sample_rate": self.sample_rate}

    def __str__(self) -> str:
        return f"{self.base}.poisson({self.sample_rate:g})"
