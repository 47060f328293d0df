"""Batches of a fixed size, drawn afresh and without replacement for every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr

from tacit import check
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import Pair, SubstitutedPair
from tacit.mechanisms.renyi import fixed_size_rdp
from tacit.relation import Relation


@dataclass(frozen=True)
class FixedSize(Mechanism):
    """`base` run on `batch_size` of `records` records, a uniform subset drawn independently in each step.

    Accounted under replace-one, where the number of records is public: with g = batch_size / records and delta the
    profile of `base` under replace-one, a step has delta'(log(1 + g (e^epsilon - 1))) <= g delta(epsilon) (Balle,
    Barthe & Gaboardi 2018, Section 4). Other relations are refused.

    Args:
        base: the mechanism that runs on the batch; not itself subsampled or composed.
        records: > 0, the number of records.
        batch_size: in [1, records].
    """

    type: ClassVar[str] = "fixed_size"
    base: Mechanism
    records: int
    batch_size: int

    @property
    def unsafe(self) -> tuple[str, ...]:
        return self.base.unsafe

    def __post_init__(self) -> None:
        check_batches(self)

    @property
    def fraction(self) -> float:
        """batch_size / records."""
        return self.batch_size / self.records

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        self._only_replacement(relation)
        pairs = self.base.dominating_pairs(relation)
        return pairs if self.fraction == 1.0 else tuple(SubstitutedPair(pair, self.fraction) for pair in pairs[:1])

    def pure_epsilon(self, relation: Relation) -> float:
        self._only_replacement(relation)
        whole = self.base.pure_epsilon(relation)
        return float(np.log1p(self.fraction * np.expm1(whole))) if whole < 700 else whole

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        self._only_replacement(relation)
        whole = self.base.epsilon_at(min(delta / self.fraction, 1.0), relation)
        return float(np.log1p(self.fraction * np.expm1(whole))) if whole < 700 else whole

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """See `fixed_size_rdp`."""
        self._only_replacement(relation)
        pure = self.base.pure_epsilon(relation) if self.base.is_pure(relation) else float("inf")
        return fixed_size_rdp(self.fraction, lambda each: self.base.rdp(each, relation), pure, orders)

    def published_generic_rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """q^2 D_a of the unsampled mechanism, as for a Poisson sample."""
        self._only_replacement(relation)
        return self.fraction**2 * self.base.rdp(orders, relation)

    def clt_mu_squared(self, relation: Relation) -> float:
        """2 g^2 (e^{mu^2} Phi(3 mu / 2) + 3 Phi(-mu / 2) - 2), mu of `base`: C_g(G_mu) in Bu et al., Theorem 5."""
        self._only_replacement(relation)
        mu = self.base.mu(relation)
        return float(2 * self.fraction**2 * (np.exp(mu**2) * ndtr(1.5 * mu) + 3 * ndtr(-0.5 * mu) - 2))

    def zcdp(self, relation: Relation) -> float:
        self._only_replacement(relation)
        return self.base.zcdp(relation)

    def spec(self) -> dict[str, Any]:
        sampling = {"sampling": self.type, "records": self.records, "batch_size": self.batch_size}
        return self.base.spec() | sampling

    def _only_replacement(self, relation: Relation) -> None:
        if relation is not Relation.REPLACE_ONE:
            raise Refused(f"{self} is accounted under replace_one only; got {relation.value}. State that relation.")

    def __str__(self) -> str:
        return f"{self.base}.fixed_size({self.batch_size} of {self.records})"


def check_batches(mechanism: Any) -> None:
    """The checks of every transformer that draws batches of `batch_size` from `records`."""
    check.count("records", mechanism.records)
    if check.count("batch_size", mechanism.batch_size) > mechanism.records:
        raise check.fail("batch_size", f"at most records = {mechanism.records}", mechanism.batch_size)
    if mechanism.base.type in ("poisson", "compose", "fixed_size", "shuffled", "truncated_poisson"):
        raise InvalidInput(f"{mechanism.type} must be applied to one unsampled mechanism; got {mechanism.base}.")
