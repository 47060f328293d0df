"""The Gaussian mechanism, the noise of DP-SGD, and mixtures of Gaussians.

The discrete Gaussian mechanism: integer noise for an integer query.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.mechanisms.allocation import RandomAllocation
from tacit.mechanisms.base import Mechanism, ShiftMechanism
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.discrete import AtomPair, DiscreteGaussianPair, DiscreteGaussianReplacePair
from tacit.mechanisms.pairs.gaussian import GaussianPair, GaussianReplacePair, SampledGaussianPair
from tacit.mechanisms.pairs.groups import LARGEST_GROUP, GaussianMixturePair, IntegerMixturePair, binomial_logs
from tacit.mechanisms.renyi import poisson_gaussian_rdp, replaced_gaussian_rdp
from tacit.relation import Relation
from tacit.tradeoff.gaussian import gaussian_epsilon

_MOST_COMPONENTS = 1000
_HINT = "Use e.g. 1.0, or unsafe_no_noise=True to train without any privacy."


@dataclass(frozen=True)
class Gaussian(ShiftMechanism):
    """A sum of contributions of L2 norm <= C plus N(0, (noise_multiplier * C)^2 I).

    `noise_multiplier` is std / clip_norm under every relation; replace-one doubles the sensitivity here,
    so the mechanism is mu-GDP with mu = sensitivity / noise_multiplier (Dong, Roth & Su 2019, Theorem 1).

    Args:
        noise_multiplier: in [1e-12, 1e12]. Zero only with `unsafe_no_noise=True`: every epsilon is then infinite.

    Example:
        >>> Gaussian(2.0).mu(Relation.ADD_REMOVE)
        0.5
        >>> Gaussian(2.0).mu(Relation.REPLACE_ONE)
        1.0
    """

    type: ClassVar[str] = "gaussian"
    noise_multiplier: float
    unsafe_no_noise: bool = False

    def __post_init__(self) -> None:
        check.instance("unsafe_no_noise", self.unsafe_no_noise, bool, "true or false")
        if self.unsafe_no_noise and self.noise_multiplier == 0:
            return
        check.positive("noise_multiplier", self.noise_multiplier, _HINT)
        check.real("noise_multiplier", self.noise_multiplier, low=1e-12, high=1e12, hint=_HINT)

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Return the `unsafe_` switches of the mechanism inside."""
        return () if self.noise_multiplier else ("unsafe_no_noise",)

    def mu(self, relation: Relation) -> float:
        """Return mu where the mechanism is exactly mu-GDP."""
        return relation.sensitivity / self.noise_multiplier if self.noise_multiplier else float("inf")

    def zcdp(self, relation: Relation) -> float:
        """Return rho = mu^2 / 2 (Bun & Steinke 2016, Proposition 1.6)."""
        return self.mu(relation) ** 2 / 2

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """Exact (Balle & Wang 2018, Theorem 8)."""
        return gaussian_epsilon(delta, self.mu(relation))

    def classical_epsilon(self, delta: float, relation: Relation) -> float:
        """sqrt(2 log(1.25 / delta)) mu (Dwork & Roth 2014, Theorem A.1): proven to epsilon 1, false beyond."""
        if delta >= 1.0:
            return 0.0
        return math.sqrt(2 * math.log(1.25 / delta)) * self.mu(relation) if delta > 0 else math.inf

    def cdp(self, relation: Relation) -> tuple[float, float]:
        """(mu^2 / 2, mu): the loss is N(mu^2 / 2, mu^2)."""
        return self.mu(relation) ** 2 / 2, self.mu(relation)

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a = a mu^2 / 2 (Mironov 2017, Corollary 3)."""
        return np.asarray(orders, dtype=float) * self.mu(relation) ** 2 / 2

    def clt_mu_squared(self, relation: Relation) -> float:
        """Return this step's part of mu^2 in the central limit theorem."""
        return self.mu(relation) ** 2

    def poisson_rdp(self, sample_rate: float, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Renyi divergence of the Poisson-subsampled step; see `poisson_gaussian_rdp`."""
        if not self.noise_multiplier:
            return np.full(np.shape(orders), np.inf)
        divergence = replaced_gaussian_rdp if relation is Relation.REPLACE_ONE else poisson_gaussian_rdp
        return divergence(sample_rate, self.noise_multiplier, orders)

    def poisson_clt_mu_squared(self, sample_rate: float, relation: Relation) -> float:
        """p^2 chi2(G_mu) = p^2 (e^{mu^2} - 1) (Bu et al., Theorem 5 and Lemma B.1)."""
        if relation is Relation.REPLACE_ONE:
            raise self.refusal("CLT functional of a Poisson sample", relation)
        mu = self.mu(relation)
        return float(sample_rate**2 * np.expm1(mu**2)) if mu < 26 else float("inf")

    def group_pair(self, size: int, relation: Relation) -> Pair:
        """N(mu, 1) against N(0, 1) (Dong, Roth & Su 2019, Theorem 1); a group has `size` times mu."""
        return GaussianPair(size * self.mu(relation)) if self.noise_multiplier else AtomPair((), (), (), 1.0)

    def poisson_pairs(self, sample_rate: float, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of the Poisson-subsampled step; under zero-out a zeroed record adds what an absent one does."""
        if not self.noise_multiplier:
            return super().poisson_pairs(sample_rate, relation)
        if relation is Relation.REPLACE_ONE:
            return (GaussianReplacePair(self.noise_multiplier, sample_rate),)
        return tuple(SampledGaussianPair(self.noise_multiplier, sample_rate, remove) for remove in (True, False))

    def poisson_group_pairs(self, sample_rate: float, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """Mixtures over how many of the group are sampled; see `GaussianMixturePair.of_group`."""
        if not self.noise_multiplier or relation is Relation.REPLACE_ONE or size > LARGEST_GROUP:
            return super().poisson_group_pairs(sample_rate, size, relation)
        sigma = self.noise_multiplier
        return tuple(GaussianMixturePair.of_group(sigma, sample_rate, size, remove=way) for way in (True, False)), 1

    def allocated(self, steps_per_epoch: int) -> RandomAllocation:
        """One step of epochs in which each record is in one of `steps_per_epoch` steps; see `RandomAllocation`."""
        return RandomAllocation(self, steps_per_epoch)

    def __str__(self) -> str:
        return f"Gaussian({self.noise_multiplier:g})"


@dataclass(frozen=True)
class GaussianMixture(Mechanism):
    """N(0, s^2) without the record, N(c_I, s^2) with it, where I = i with probability p_i and is not released.

    Vectors c_i may be used through their norms (Choquette-Choo et al. 2024, arXiv:2310.15526, Corollary 4.7).

    Args:
        noise_multiplier: s > 0, in units of `sensitivities`.
        sensitivities: c_i >= 0, at most 1000, one of them above 0.
        probabilities: p_i > 0 with sum 1 up to 1e-9, as many.

    Example:
        >>> print(GaussianMixture(1.0, (0.0, 1.0), (0.9, 0.1)))
        GaussianMixture(1, 2 components)
    """

    type: ClassVar[str] = "gaussian_mixture"
    takes_samples: ClassVar[bool] = False
    noise_multiplier: float
    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        Gaussian(self.noise_multiplier)
        for name, low in (("sensitivities", 0.0), ("probabilities", 1e-300)):
            values = getattr(self, name)
            check.that(isinstance(values, list | tuple), name, "a list of numbers", values)
            object.__setattr__(self, name, tuple(check.real(name, value, low=low, high=1e12) for value in values))
        if not 1 <= len(self.sensitivities) <= _MOST_COMPONENTS or max(self.sensitivities) == 0:
            raise check.fail("sensitivities", f"1 to {_MOST_COMPONENTS} numbers, one above 0", list(self.sensitivities))
        if len(self.probabilities) != len(self.sensitivities) or abs(math.fsum(self.probabilities) - 1) > 1e-9:
            raise check.fail("probabilities", "a list with sum 1, one for each sensitivity", list(self.probabilities))

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """The mixture against noise alone; no record that replaces another is described."""
        if relation is Relation.REPLACE_ONE:
            raise self.refusal("dominating pair", relation)
        merged = {0.0: 0.0}
        for shift, weight in zip(self.sensitivities, self.probabilities, strict=True):
            merged[shift] = merged.get(shift, 0.0) + weight
        shifts = sorted(merged)
        # The weight of 0 takes what rounding left over, so that all add up to 1.
        merged[0.0] = max(1 - math.fsum(merged[shift] for shift in shifts[1:]), 0.0) if merged[0.0] else 0.0
        total = math.fsum(merged.values())
        # One shift and none are a Poisson sample, which has engines of its own.
        if len(shifts) == 2:
            one = Gaussian(self.noise_multiplier / shifts[1])
            return one.poisson(merged[shifts[1]] / total).dominating_pairs(relation)
        logs = tuple(math.log(merged[s] / total) if merged[s] else -math.inf for s in shifts)
        return tuple(GaussianMixturePair(self.noise_multiplier, tuple(shifts), logs, way) for way in (True, False))

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a of the largest shift, which dominates the mixture."""
        if relation is Relation.REPLACE_ONE:
            raise self.refusal("Renyi divergence", relation)
        return Gaussian(self.noise_multiplier / max(self.sensitivities)).rdp(orders, relation)

    def __str__(self) -> str:
        return f"GaussianMixture({self.noise_multiplier:g}, {len(self.sensitivities)} components)"


@dataclass(frozen=True)
class DiscreteGaussian(ShiftMechanism):
    """One integer plus integer noise z of probability proportional to e^{-z^2 / (2 s^2)}.

    s = noise_multiplier * sensitivity (Canonne, Kamath & Steinke 2020).

    Args:
        noise_multiplier: > 0, s in units of `sensitivity`; s is at most 100,000.
        sensitivity: an integer >= 1, the largest change of the query by adding, removing or zeroing one record;
            replace-one doubles it here.

    Example:
        >>> DiscreteGaussian(2.0).zcdp(Relation.ADD_REMOVE)
        0.125
    """

    type: ClassVar[str] = "discrete_gaussian"
    noise_multiplier: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check.count("sensitivity", self.sensitivity)
        check.real(
            "noise_multiplier * sensitivity",
            check.positive("noise_multiplier", self.noise_multiplier) * self.sensitivity,
            high=1e5,
            hint="Use the continuous gaussian mechanism beyond.",
        )

    @property
    def scale(self) -> float:
        """s, the scale of the noise in units of the query."""
        return self.noise_multiplier * self.sensitivity

    def zcdp(self, relation: Relation) -> float:
        """Return rho = (change / s)^2 / 2 (Canonne, Kamath & Steinke 2020, Proposition 5)."""
        return (relation.sensitivity / self.noise_multiplier) ** 2 / 2

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order."""
        return self.zcdp(relation) * np.asarray(orders, dtype=float)

    def group_pair(self, size: int, relation: Relation) -> Pair:
        """The largest shift; its ratio is monotone, so smaller shifts have smaller threshold tests."""
        return DiscreteGaussianPair(self.scale, size * int(relation.sensitivity) * self.sensitivity)

    def poisson_group_pairs(self, sample_rate: float, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """Mixtures over how many of the group are sampled; see `IntegerMixturePair`."""
        if size > LARGEST_GROUP:
            return super().poisson_group_pairs(sample_rate, size, relation)
        pair = DiscreteGaussianPair(self.scale, self.sensitivity)
        return IntegerMixturePair.both_ways(pair, binomial_logs(sample_rate, size), relation), 1

    def poisson_pairs(self, sample_rate: float, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of the Poisson-subsampled step; under zero-out a zeroed record adds what an absent one does."""
        if relation is Relation.REPLACE_ONE:
            return (DiscreteGaussianReplacePair(self.scale, self.sensitivity, sample_rate),)
        return super().poisson_pairs(sample_rate, relation)

    def __str__(self) -> str:
        unit = "" if self.sensitivity == 1 else f", {self.sensitivity}"
        return f"DiscreteGaussian({self.noise_multiplier:g}{unit})"
