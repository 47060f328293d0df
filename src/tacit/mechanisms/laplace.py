"""The Laplace mechanism."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import LaplacePair, LaplaceReplacePair, Pair, sampled_pairs
from tacit.relation import Relation


@dataclass(frozen=True)
class Laplace(Mechanism):
    """One number plus Laplace noise of density e^{-|x| / scale} / (2 scale).

    Args:
        scale: > 0, in the units of `sensitivity`.
        sensitivity: > 0, the change by adding, removing or zeroing one record; replace-one doubles it here.

    Example:
        >>> Laplace(2.0).pure_epsilon(Relation.ADD_REMOVE)
        0.5
    """

    type: ClassVar[str] = "laplace"
    scale: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        check.positive("scale", self.scale)
        check.positive("sensitivity", self.sensitivity)

    def pure_epsilon(self, relation: Relation) -> float:
        """Return sensitivity / scale (Dwork, McSherry, Nissim & Smith 2006)."""
        return relation.sensitivity * self.sensitivity / self.scale

    def zcdp(self, relation: Relation) -> float:
        """Return rho = epsilon^2 / 2 (Bun & Steinke 2016, Proposition 1.4)."""
        return self.pure_epsilon(relation) ** 2 / 2

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a = log(a/(2a-1) e^{(a-1) t} + (a-1)/(2a-1) e^{-a t}) / (a-1), t = epsilon (Mironov 2017, Table II)."""
        a = np.asarray(orders, dtype=float)
        t = self.pure_epsilon(relation)
        log_moment = np.logaddexp(np.log(a / (2 * a - 1)) + (a - 1) * t, np.log((a - 1) / (2 * a - 1)) - a * t)
        return np.clip(log_moment, 0.0, None) / (a - 1)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Lap(epsilon) against Lap(0); smaller shifts are garblings."""
        return (LaplacePair(self.pure_epsilon(relation)),)

    def poisson_pairs(self, sample_rate: float, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of the Poisson-subsampled step; under zero-out a zeroed record adds what an absent one does."""
        if relation is Relation.REPLACE_ONE:
            return (LaplaceReplacePair(self.sensitivity / self.scale, sample_rate),)
        return sampled_pairs(self.dominating_pairs(relation), sample_rate, both=False)

    def __str__(self) -> str:
        return f"Laplace({self.scale:g})" if self.sensitivity == 1 else f"Laplace({self.scale:g}, {self.sensitivity:g})"
