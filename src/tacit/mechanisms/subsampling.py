"""Batches other than Poisson samples: of a fixed size, shuffled, and Poisson samples of bounded size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import bdtrc, ndtr

from tacit import check
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms.base import SUBSAMPLED, Mechanism
from tacit.mechanisms.gaussian import Gaussian
from tacit.mechanisms.pairs import MixedPair, Pair, SubstitutedPair
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

    Example:
        >>> print(FixedSize(Gaussian(1.0), records=1000, batch_size=10))
        Gaussian(1).fixed_size(10 of 1000)
    """

    type: ClassVar[str] = "fixed_size"
    base: Mechanism
    records: int
    batch_size: int

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Return the `unsafe_` switches of the mechanism inside."""
        return self.base.unsafe

    def __post_init__(self) -> None:
        check_batches(self)

    @property
    def fraction(self) -> float:
        """batch_size / records."""
        return self.batch_size / self.records

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Return the dominating pairs, (with, without) the record first."""
        self._only_replacement(relation)
        pairs = self.base.dominating_pairs(relation)
        return pairs if self.fraction == 1.0 else tuple(SubstitutedPair(pair, self.fraction) for pair in pairs[:1])

    def pure_epsilon(self, relation: Relation) -> float:
        """Return the smallest known epsilon of pure DP."""
        self._only_replacement(relation)
        whole = self.base.pure_epsilon(relation)
        return float(np.log1p(self.fraction * np.expm1(whole))) if whole < 700 else whole

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """Return the smallest known epsilon at delta."""
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
        """Return rho of zero-concentrated DP."""
        self._only_replacement(relation)
        return self.base.zcdp(relation)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
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
    if mechanism.base.type in SUBSAMPLED:
        raise InvalidInput(f"{mechanism.type} must be applied to one unsampled mechanism; got {mechanism.base}.")


@dataclass(frozen=True)
class Shuffled(Mechanism):
    """One step of `base` on a batch of a partition of the records, passes following one another.

    A record is in at most one batch of each pass, so as many passes as have begun are as many runs of `base` with the
    record and nothing else, whatever the order of the batches: no amplification is claimed. A pass has
    records / batch_size batches, rounded up where its incomplete last batch runs and down where it is left out; which
    of the two is not known from the sizes, and the shorter pass, of which more begin, is taken unless stated. The
    guarantee rests on passes that visit every record before any is visited again; under add/remove a missing record is
    one that adds nothing. Steps of one series add up before they are rounded up to passes; two
    series, such as those of two runs, may each hold a record in a pass they have only begun, so each is rounded up.

    Args:
        base: the mechanism that runs on a batch; not itself subsampled or composed.
        records: > 0, the number of records of a pass.
        batch_size: in [1, records].
        series: >= 0, number of the uninterrupted series of passes that the step belongs to.
        drop_last: whether an incomplete last batch of a pass may be left out; False where it runs (`ShuffledSampler`).

    Example:
        >>> Shuffled(Gaussian(1.0), records=100, batch_size=10).accounted(25)
        (Gaussian(noise_multiplier=1.0, unsafe_no_noise=False), 3)
    """

    type: ClassVar[str] = "shuffled"
    base: Mechanism
    records: int
    batch_size: int
    series: int = 0
    drop_last: bool = True

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Return the `unsafe_` switches of the mechanism inside."""
        return self.base.unsafe

    def __post_init__(self) -> None:
        check_batches(self)
        check.count("series", self.series, minimum=0)
        check.instance("drop_last", self.drop_last, bool, "true or false")

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(base, passes begun): ceil(steps / batches of a pass) runs of `base`."""
        batches = self.records // self.batch_size if self.drop_last else -(-self.records // self.batch_size)
        return self.base, -(-steps // batches)

    def series_taken(self) -> int:
        """Return one above the highest number of a series in the mechanism."""
        return self.series + 1

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        sampling = {"sampling": self.type, "records": self.records, "batch_size": self.batch_size}
        # The first series goes unnamed, as in ledgers that were written before series were told apart.
        named = {"series": self.series} if self.series else {}
        return self.base.spec() | sampling | named | ({} if self.drop_last else {"drop_last": False})

    def __str__(self) -> str:
        named = f", series {self.series}" if self.series else ""
        return f"{self.base}.shuffled({self.batch_size} of {self.records}{named})"


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

    Example:
        >>> step = TruncatedPoisson(Gaussian(1.0), sample_rate=0.01, records=1000, cap=40)
        >>> step.full < 1e-9
        True
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
        """Return epsilon at delta by the textbook formula of the mechanism inside."""
        usual, rare = self._sides(relation)
        return (rare if self.full else usual).classical_epsilon(delta, relation)

    def cdp(self, relation: Relation) -> tuple[float, float]:
        """Unsampled, as for zCDP."""
        return self._sides(relation)[1 if self.full else 0].cdp(relation)

    def zcdp(self, relation: Relation) -> float:
        """Unsampled, with half the noise: a full batch shifts by twice as much."""
        return self._sides(relation)[1 if self.full else 0].zcdp(relation)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        sampling = {"sampling": self.type, "sample_rate": self.sample_rate, "records": self.records, "cap": self.cap}
        return self.base.spec() | sampling

    def __str__(self) -> str:
        return f"{self.base}.truncated_poisson({self.sample_rate:g}, at most {self.cap} of {self.records})"
