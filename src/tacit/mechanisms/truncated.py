"""Poisson samples of bounded size: what exceeds the bound is left out at random."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import bdtrc

from tacit import check
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.gaussian import Gaussian
from tacit.mechanisms.pairs import MixedPair, Pair
from tacit.relation import Relation


@dataclass(frozen=True)
class TruncatedPoisson(Mechanism):
    """`base` on a Poisson sample of which, where it has more than `cap` records, a uniform subset of `cap` is kept.

    Leaving records out is not harmless: where the sample is full, a further record does not only add its own
    contribution, it pushes another one out. Let S be the Poisson sample of the other n records, s its size, and x the
    record that only one of two neighbours (add_remove) holds. With probability 1 - p, x is not drawn, and both run on
    the same truncated S. If it is drawn and

    - s < cap: both are whole, and their sums differ by the contribution of x, of norm <= C;
    - s >= cap: the kept part of S + x has x with probability cap / (s + 1), and is otherwise a uniform subset of S, as
      the kept part R of S is. Where it has x, the rest is R without a uniform member r, so that both are functions of
      the same (S, R, r), and their sums differ by x - r, of norm <= 2 C, with probability p cap / (s + 1) <= p.

    (S, R, r) has the same law in both worlds, divergences are jointly convex, and those of a sampled Gaussian grow with
    the rate and with the shift. So with f = P(Binomial(n, p) >= cap), the chance of a full sample, every hockey-stick
    divergence is at most

        (1 - f) H(p, noise_multiplier) + f H(p, noise_multiplier / 2)

    which is that of a mixed pair and composes like any other. A full sample costs what a step with half the noise
    costs; nothing is added to delta. Under replace_one the same holds with the pairs of that relation: x - r and y - r
    both have norm <= 2 C, and so has their difference. zero_out is refused: there the blank record takes a place.

    Args:
        base: a Gaussian mechanism.
        sample_rate: p in (0, 1].
        records: n, the number of records that the data have.
        cap: the largest size of a batch, >= 1.
    """

    type: ClassVar[str] = "truncated_poisson"
    base: Gaussian
    sample_rate: float
    records: int
    cap: int

    def __post_init__(self) -> None:
        check.probability("sample_rate", self.sample_rate, open_low=True, hint="Use batch_size / n.")
        check.count("records", self.records)
        check.count("cap", self.cap)
        if not isinstance(self.base, Gaussian):
            raise InvalidInput(f"truncated_poisson must be applied to a Gaussian mechanism; got {self.base}.")

    @cached_property
    def full(self) -> float:
        """P(Binomial(records, sample_rate) >= cap), rounded up."""
        if self.cap > self.records:
            return 0.0
        return min(float(bdtrc(self.cap - 1, self.records, self.sample_rate)) * (1 + 1e-9) + 1e-300, 1.0)

    def _sides(self, relation: Relation) -> tuple[Mechanism, Mechanism]:
        """What a step with room is, and what a full one is."""
        if relation is Relation.ZERO_OUT:
            raise Refused(f"{self} is accounted under add_remove or replace_one; got zero_out. State one of them.")
        halved = replace(self.base, noise_multiplier=self.base.noise_multiplier / 2)
        return self.base.poisson(self.sample_rate), halved.poisson(self.sample_rate)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Mixed pairs. Where all others contribute 0, x counts at a rate of p (1 - f) or more: that much is reached."""
        usual, rare = (side.dominating_pairs(relation) for side in self._sides(relation))
        if not self.full:
            return usual
        kept = max(1 - self.full, self.cap / (self.records + 1))
        least = self.base.poisson(self.sample_rate * kept).dominating_pairs(relation)
        mixed = [MixedPair(usual[-1], rare[-1], self.full, low) for low in least]
        return tuple(replace(pair, usual=u, rare=r) for pair, u, r in zip(mixed, usual, rare, strict=False))

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """log((1 - f) e^{(a-1) D_a} + f e^{(a-1) D'_a}) / (a - 1) of the divergences of both cases."""
        usual, rare = (side.rdp(orders, relation) for side in self._sides(relation))
        if not self.full:
            return usual
        a = np.asarray(orders, dtype=float) - 1
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log1p(-self.full) + a * usual, np.log(self.full) + a * rare) / a

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """The smaller of what holds in both cases at delta, and with room at delta - f."""
        usual, rare = self._sides(relation)
        both = rare.epsilon_at(delta, relation) if self.full else usual.epsilon_at(delta, relation)
        return min(both, usual.epsilon_at(delta - self.full, relation)) if delta > self.full else both

    def classical_epsilon(self, delta: float, relation: Relation) -> float:
        usual, rare = self._sides(relation)
        return (rare if self.full else usual).classical_epsilon(delta, relation)

    def cdp(self, relation: Relation) -> tuple[float, float]:
        """Unsampled, as for zCDP."""
        return self._sides(relation)[1 if self.full else 0].cdp(relation)

    def zcdp(self, relation: Relation) -> float:
        """Unsampled, with half the noise: a full batch shifts by twice as much."""
        return self._sides(relation)[1 if self.full else 0].zcdp(relation)

    def spec(self) -> dict[str, Any]:
        sampling = {"sampling": self.type, "sample_rate": self.sample_rate, "records": self.records, "cap": self.cap}
        return self.base.spec() | sampling

    def __str__(self) -> str:
        return f"{self.base}.truncated_poisson({self.sample_rate:g}, at most {self.cap} of {self.records})"
