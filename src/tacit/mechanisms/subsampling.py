"""Batches other than Poisson samples: of a fixed size, shuffled, and Poisson samples of bounded size."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import bdtrc, ndtr

from tacit import check
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms.base import Mechanism, OnBatches, check_unsampled
from tacit.mechanisms.gaussian import Gaussian
from tacit.mechanisms.pairs.base import MixedPair, Pair
from tacit.mechanisms.pairs.gaussian import GaussianPair
from tacit.mechanisms.pairs.subsampled import SubstitutedPair
from tacit.mechanisms.renyi import fixed_size_rdp
from tacit.relation import Relation


@dataclass(frozen=True)
class FixedSize(OnBatches):
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

    def __post_init__(self) -> None:
        check_batches(self)

    @property
    def fraction(self) -> float:
        """batch_size / records."""
        return self.batch_size / self.records

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Return the dominating pairs, (with, without) the record first."""
        pairs = self._replaced(relation).dominating_pairs(relation)
        return pairs if self.fraction == 1.0 else tuple(SubstitutedPair(pair, self.fraction) for pair in pairs[:1])

    def pure_epsilon(self, relation: Relation) -> float:
        """Return the smallest known epsilon of pure DP."""
        return self._amplified(self._replaced(relation).pure_epsilon(relation))

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """Return the smallest known epsilon at delta."""
        return self._amplified(self._replaced(relation).epsilon_at(min(delta / self.fraction, 1.0), relation))

    def _amplified(self, epsilon: float) -> float:
        return float(np.log1p(self.fraction * np.expm1(epsilon))) if epsilon < 700 else epsilon

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """See `fixed_size_rdp`."""
        base = self._replaced(relation)
        pure = base.pure_epsilon(relation) if base.is_pure(relation) else float("inf")
        return fixed_size_rdp(self.fraction, lambda each: base.rdp(each, relation), pure, orders)

    def published_generic_rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """q^2 D_a of the unsampled mechanism, as for a Poisson sample."""
        return self.fraction**2 * self._replaced(relation).rdp(orders, relation)

    def clt_mu_squared(self, relation: Relation) -> float:
        """2 g^2 (e^{mu^2} Phi(3 mu / 2) + 3 Phi(-mu / 2) - 2), mu of `base`: C_g(G_mu) in Bu et al., Theorem 5."""
        mu = self._replaced(relation).mu(relation)
        return float(2 * self.fraction**2 * (np.exp(mu**2) * ndtr(1.5 * mu) + 3 * ndtr(-0.5 * mu) - 2))

    def zcdp(self, relation: Relation) -> float:
        """Return rho of zero-concentrated DP."""
        return self._replaced(relation).zcdp(relation)

    def _replaced(self, relation: Relation) -> Mechanism:
        """`base`, under replace-one alone."""
        if relation is not Relation.REPLACE_ONE:
            raise Refused(f"{self} is accounted under replace_one only; got {relation.value}. State that relation.")
        return self.base

    def __str__(self) -> str:
        return f"{self.base}.fixed_size({self.batch_size} of {self.records})"


def check_batches(mechanism: Any) -> None:
    """The checks of every transformer that draws batches of `batch_size` from `records`."""
    check.count("records", mechanism.records)
    if check.count("batch_size", mechanism.batch_size) > mechanism.records:
        raise check.fail("batch_size", f"at most records = {mechanism.records}", mechanism.batch_size)
    check_unsampled(mechanism)


@dataclass(frozen=True)
class Shuffled(OnBatches):
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

    def __post_init__(self) -> None:
        check_batches(self)
        check.count("series", self.series, minimum=0)
        check.instance("drop_last", self.drop_last, bool, "true or false")

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(base, passes begun): ceil(steps / batches of a pass) runs of `base`."""
        batches = self.records // self.batch_size if self.drop_last else -(-self.records // self.batch_size)
        return self.base, -(-steps // batches)

    def __str__(self) -> str:
        named = f", series {self.series}" if self.series else ""
        return f"{self.base}.shuffled({self.batch_size} of {self.records}{named})"


@dataclass(frozen=True)
class TruncatedPoisson(OnBatches):
    """`base` on a Poisson sample of which, where it has more than `cap` records, a uniform subset of `cap` is kept.

    Leaving records out is not harmless: where the sample is full, a further record does not only add its own
    contribution, it pushes another one out. Let S be the Poisson sample of the m other records, s its size, and x the
    record that only one of two neighbours (add_remove) holds. The event s >= cap, of probability f, depends on the
    others alone.

    - s < cap: x is drawn with probability p, and the sums differ by its contribution, of norm <= C.
    - s >= cap: x is drawn and kept with probability p cap / (s + 1). Without it, the kept part R is a uniform subset of
      cap of the others, whatever s is; with it, the rest is R without a uniform member r. So x is kept with
      probability k = E[p cap / (s + 1) | s >= cap] = cap P(Binomial(m + 1, p) > cap) / ((m + 1) f), independently of
      (R, r), and the sums differ by x - r, of norm <= 2 C.

    Divergences are jointly convex, and those of a sampled Gaussian grow with the shift, so every hockey-stick
    divergence is at most

        (1 - f) H(p, noise_multiplier) + f H(k, noise_multiplier / 2)

    which is that of a mixed pair and composes like any other; nothing is added to delta. With n records neighbours have
    m = n others, where a record is added, or m = n - 1, where one is removed: each has pairs of its own. Under
    replace_one m is n - 1, and where x or its replacement y is kept, x - r, y - r and x - y all have norm <= 2 C. In
    the proof of `GaussianReplacePair` the distances are then 2 C and 2 C, so that y - r = 0 is the worst case: for
    a >= 1 that of adding and for a < 1 its mirror image, which is the pair of a batch of fixed size. zero_out is
    replace_one with y = 0, a blank record that takes its place: where the sample has room, the sums differ by x alone,
    and the full case is as above.

    Args:
        base: a Gaussian mechanism.
        sample_rate: p in (0, 1].
        records: n, the number of records that the data have.
        cap: the largest size of a batch, >= 1.

    Example:
        >>> step = TruncatedPoisson(Gaussian(1.0), sample_rate=0.01, records=1000, cap=40)
        >>> step.full(others=1000) < 1e-9
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

    def others(self, relation: Relation) -> tuple[int, ...]:
        """How many other records there may be: m of the class's docstring."""
        return (self.records, self.records - 1) if relation is Relation.ADD_REMOVE else (self.records - 1,)

    def full(self, others: int) -> float:
        """P(Binomial(others, sample_rate) >= cap), rounded up."""
        if self.cap > others:
            return 0.0
        return min(float(bdtrc(self.cap - 1, others, self.sample_rate)) * (1 + 1e-9) + 1e-300, 1.0)

    def kept(self, others: int) -> float:
        """The probability with which a full sample keeps a record, rounded up; at most sample_rate cap / (cap + 1)."""
        more = float(bdtrc(self.cap, others + 1, self.sample_rate)) * (1 + 1e-9) + 1e-300
        least = float(bdtrc(self.cap - 1, others, self.sample_rate)) * (1 - 1e-9)
        share = self.cap / (others + 1)
        # The binomial tail is accurate to 1e-9 or better; where it underflows, the mean at s = cap is the largest.
        return min(share * more / max(least, 1e-300), self.sample_rate * self.cap / (self.cap + 1))

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Mixed pairs; those of n others, then those of n - 1. Others that contribute 0 reach a sampled Gaussian."""
        first, *more = (self._mixed(others, relation) for others in self.others(relation))
        return first if more in ([], [first]) else first + more[0]

    def _mixed(self, others: int, relation: Relation) -> tuple[Pair, ...]:
        usual, full = self.base.poisson(self.sample_rate).dominating_pairs(relation), self.full(others)
        if relation is not Relation.REPLACE_ONE:
            usual = usual[0], usual[-1]
        if not full:
            return usual
        kept = self.kept(others)
        rare = self._halved.poisson(kept).dominating_pairs(relation)
        if relation is not Relation.ADD_REMOVE and self.base.noise_multiplier:
            rare = (SubstitutedPair(GaussianPair(2 / self.base.noise_multiplier), kept),) * len(usual)
        rate = (1 - full) * self.sample_rate + full * kept
        least = self.base.poisson(rate * (1 - 1e-8)).dominating_pairs(relation)
        return tuple(MixedPair(u, r, full, low) for u, r, low in zip(usual, rare, least, strict=True))

    @property
    def _halved(self) -> Gaussian:
        return replace(self.base, noise_multiplier=self.base.noise_multiplier / 2)

    def _sides(self, relation: Relation) -> tuple[Mechanism, Mechanism]:
        """What a step with room is, and what a full one is at most."""
        return self.base.poisson(self.sample_rate), self._halved.poisson(self.sample_rate)

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """log((1 - f) e^{(a-1) D_a} + f e^{(a-1) D'_a}) / (a - 1) of the D of both cases, the larger over m."""
        a = np.asarray(orders, dtype=float) - 1
        found = [usual := self._sides(relation)[0].rdp(orders, relation)]
        for others in self.others(relation):
            if full := self.full(others):
                rare = self._halved.poisson(self.kept(others)).rdp(orders, _full_case(relation))
                with np.errstate(divide="ignore"):
                    found.append(np.logaddexp(np.log1p(-full) + a * usual, np.log(full) + a * rare) / a)
        return np.max(found, axis=0)

    def _most(self, relation: Relation) -> float:
        """The larger f over m."""
        return max(self.full(others) for others in self.others(relation))

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """The smaller of what holds in both cases at delta, and with room at delta - f."""
        (usual, rare), full = self._sides(relation), self._most(relation)
        both = rare.epsilon_at(delta, _full_case(relation)) if full else usual.epsilon_at(delta, relation)
        return min(both, usual.epsilon_at(delta - full, relation)) if delta > full else both

    def _unsampled(self, relation: Relation) -> Mechanism:
        return self._sides(relation)[1 if self._most(relation) else 0]

    def classical_epsilon(self, delta: float, relation: Relation) -> float:
        """Return epsilon at delta by the textbook formula of the mechanism inside."""
        return self._unsampled(relation).classical_epsilon(delta, relation)

    def cdp(self, relation: Relation) -> tuple[float, float]:
        """Unsampled, as for zCDP."""
        return self._unsampled(relation).cdp(relation)

    def zcdp(self, relation: Relation) -> float:
        """Unsampled, with half the noise: a full batch shifts by twice as much."""
        return self._unsampled(relation).zcdp(relation)

    def __str__(self) -> str:
        return f"{self.base}.truncated_poisson({self.sample_rate:g}, at most {self.cap} of {self.records})"


def _full_case(relation: Relation) -> Relation:
    """The relation of a full sample: a blank record that takes a place is another record."""
    return Relation.REPLACE_ONE if relation is Relation.ZERO_OUT else relation
