"""Composition theorems for (epsilon, delta) guarantees of single steps.

Basic composition: Dwork, Kenthapadi, McSherry, Mironov & Naor 2006. Advanced composition: Dwork, Rothblum & Vadhan
2010. Optimal composition: Kairouz, Oh & Viswanath 2015.

The central limit theorem for f-DP (Bu, Dong, Long & Su 2020).

Concentrated differential privacy: zCDP (Bun & Steinke 2016) and mean-concentrated (Dwork & Rothblum 2016).

The heuristic for deep networks of which only the last iterate is released: as if losses were linear.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, log_ndtr, xlog1py, xlogy

from tacit.accounting.base import Accountant
from tacit.accounting.ledger import Ledger
from tacit.accounting.pld.accountant import Pld
from tacit.errors import Refused
from tacit.mechanisms import Approximate, Compose, Gaussian, Mechanism, ObjectivePerturbation, Poisson
from tacit.relation import Relation
from tacit.root_finding import bracketed_root
from tacit.standing import Standing
from tacit.tradeoff import Curve, EpsilonCurve, GaussianCurve, ProfileCurve, TradeOff
from tacit.tradeoff.gaussian import gaussian_delta

Steps = Callable[[float], list[tuple[float, int]]]
"""(epsilon, steps) of every part at the delta that they share."""
EpsilonRule = Callable[[Mechanism, float, Relation], float]
"""Epsilon of one step at its share of delta."""

_LARGEST_EXPONENT = 700.0  # e^709.8 is the largest double
_SHARED_DELTA = 5e-7  # the part of delta that the own deltas of the steps of `Optimal` use up
_SHARES = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)  # splits of epsilon that are tried, in units of the Gaussian step's mu


def textbook(part: Mechanism, delta: float, relation: Relation) -> float:
    """The larger of the classical and the exact epsilon of one step: a bound also beyond the classical proof."""
    return max(part.classical_epsilon(delta, relation), part.epsilon_at(delta, relation))


def published(part: Mechanism, delta: float, relation: Relation) -> float:
    """The classical epsilon of one step also beyond its proof, as Jayaraman & Evans use it."""
    return part.classical_epsilon(delta, relation)


def per_step(mechanism: Mechanism, relation: Relation, delta: float, rule: EpsilonRule) -> list[tuple[float, int]]:
    """(epsilon, steps) of every part; the steps that are not pure share `delta` equally.

    Args:
        mechanism: what runs.
        relation: neighbouring relation.
        delta: in (0, 1), shared by the steps.
        rule: epsilon of one step at its share.
    """
    share = _share(mechanism, relation, delta)
    return [
        (rule(part, 0.0 if part.is_pure(relation) else share, relation), steps) for part, steps in mechanism.parts()
    ]


def _share(mechanism: Mechanism, relation: Relation, delta: float) -> float:
    return delta / max(sum(steps for part, steps in mechanism.parts() if not part.is_pure(relation)), 1)


class _Composition(Accountant):
    """Epsilon of a composition as a function of delta, from the per-step epsilons of `rule`."""

    rule: ClassVar[EpsilonRule]

    @abstractmethod
    def composed(self, steps: Steps, delta: float) -> float:
        """Epsilon at `delta` in (0, 1) of `steps`, a function of the delta that the steps share."""

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The curve of the composed epsilon."""
        steps = partial(per_step, mechanism, relation, rule=type(self).rule)
        return EpsilonCurve(partial(self.composed, steps))


class NaiveJayaramanEvans(_Composition):
    """Naive composition as Jayaraman & Evans (2019) calibrate it: the classical formula at every epsilon."""

    name: ClassVar[str] = "naive_jayaraman_evans"
    standing: ClassVar[Standing] = Standing.CLAIMED
    rule = staticmethod(published)

    def composed(self, steps: Steps, delta: float) -> float:
        """Sum of the per-step epsilons."""
        return sum(times * epsilon for epsilon, times in steps(delta))


class Naive(NaiveJayaramanEvans):
    """Sum of per-step epsilons; the steps that are not pure share delta equally.

    A Gaussian step's epsilon is the larger of sqrt(2 log(1.25/delta)) / sigma and the exact one, so the sum is a
    bound also where the classical formula's proof (epsilon <= 1) does not reach. Objective perturbation and its
    rounding step are the two unlike steps of one release: `JointCurve` splits their delta in the best way.
    """

    name: ClassVar[str] = "naive"
    standing: ClassVar[Standing] = Standing.PROVEN
    rule = staticmethod(textbook)

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The joint curve of objective perturbation and rounding, the sum for anything else."""
        return joint(mechanism, relation) or super().curve(mechanism, relation)


class Advanced(_Composition):
    """eps = sqrt(2 log(1/delta') sum eps_i^2) + sum eps_i (e^{eps_i} - 1) (Dwork & Roth 2014, Theorem 3.20).

    delta' is half of delta; the steps that are not pure share the other half.
    """

    name: ClassVar[str] = "advanced"
    standing: ClassVar[Standing] = Standing.PROVEN
    rule = staticmethod(textbook)

    def composed(self, steps: Steps, delta: float) -> float:
        """Deviation plus drift of the privacy loss; inf at delta 0."""
        if delta <= 0.0:
            return math.inf
        found = steps(delta / 2)
        drift = self.drift(found)
        if math.isinf(drift):
            return math.inf
        squares = sum(times * epsilon**2 for epsilon, times in found)
        return math.sqrt(2 * math.log(2 / delta) * squares) + drift

    def drift(self, steps: list[tuple[float, int]]) -> float:
        """Bound on the mean privacy loss, sum of eps_i (e^{eps_i} - 1)."""
        if any(epsilon > _LARGEST_EXPONENT for epsilon, _ in steps):
            return math.inf
        return sum(times * epsilon * math.expm1(epsilon) for epsilon, times in steps)


class AdvancedJayaramanEvans(Advanced):
    """Jayaraman & Evans's form: eps = sqrt(2 log(2/delta) sum eps_i^2) + sum eps_i^2.

    It puts x for e^x - 1, the wrong side of the theorem it invokes.
    """

    name: ClassVar[str] = "advanced_jayaraman_evans"
    standing: ClassVar[Standing] = Standing.CLAIMED
    rule = staticmethod(published)

    def drift(self, steps: list[tuple[float, int]]) -> float:
        """Sum of eps_i^2."""
        return sum(times * epsilon**2 for epsilon, times in steps)


class Optimal(Accountant):
    """The best bound from every step's (epsilon_i, delta_i) alone.

    By Theorem 3.3 of Kairouz, Oh & Viswanath an (epsilon, delta)-DP step is dominated by randomised response that
    reveals everything with probability delta; `pld` computes the exact composition of those. Steps that are not pure
    share a delta of 5e-7 equally, so the curve ends there: a smaller one costs infinity.
    """

    name: ClassVar[str] = "optimal"
    standing: ClassVar[Standing] = Standing.PROVEN

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The exact curve of the composed randomised responses."""
        steps = per_step(mechanism, relation, _SHARED_DELTA, textbook)
        if any(math.isinf(epsilon) for epsilon, _ in steps):
            return GaussianCurve(math.inf)
        share = _share(mechanism, relation, _SHARED_DELTA)
        responses = [
            (Approximate(epsilon, 0.0 if part.is_pure(relation) else share), times)
            for (epsilon, times), (part, _) in zip(steps, mechanism.parts(), strict=True)
        ]
        return Pld().curve(Compose.of(*responses), relation)


class JointCurve(Curve):
    """An objective perturbation, for any number of corners, and the Gaussian step that hides its solver's error.

    delta(epsilon) <= min over t of delta_objective(epsilon - t) + delta_gaussian(t): either loss may be large.
    """

    def __init__(self, objective: ObjectivePerturbation, mu: float, relation: Relation):
        self._objective = objective
        self._mu = mu
        self._relation = relation

    def delta(self, epsilon: float) -> float:
        """The smallest bound over the splits of epsilon that are tried."""
        shares = [share * self._mu for share in _SHARES if share * self._mu < epsilon] or [0.0]
        return min(
            min(self._objective.delta_at(epsilon - share, self._relation) + gaussian_delta(share, self._mu), 1.0)
            for share in shares
        )


def joint(mechanism: Mechanism, relation: Relation) -> JointCurve | None:
    """The curve of one objective perturbation and one Gaussian step; None for anything else."""
    parts = list(mechanism.parts())
    if len(parts) != 2 or any(steps > 1 for _, steps in parts):
        return None
    kinds = {type(part): part for part, _ in parts}
    objective, rounding = kinds.get(ObjectivePerturbation), kinds.get(Gaussian)
    if not isinstance(objective, ObjectivePerturbation) or not isinstance(rounding, Gaussian):
        return None
    return JointCurve(objective, rounding.mu(relation), relation)


class Clt(Accountant):
    """The Gaussian limit of the composed trade-off function, mu = p sqrt(T (e^{1/sigma^2} - 1)).

    Theorem 5 of Bu et al.: a limit as p sqrt(T) tends to a constant, without any bound on the error at finite
    T. It lies below the exact epsilon on most published rows; it is never a bound.
    """

    name: ClassVar[str] = "clt"
    standing: ClassVar[Standing] = Standing.ASYMPTOTIC

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """G_mu of the limit."""
        return GaussianCurve(math.sqrt(mechanism.clt_mu_squared(relation)))


class ZcdpCurve(ProfileCurve):
    """Profile delta(eps) = e^{-(eps - rho)^2 / (4 rho)} for eps >= rho (Bun & Steinke 2016, Proposition 1.3)."""

    def __init__(self, rho: float):
        self._rho = rho
        super().__init__(lambda epsilon: math.exp(-((epsilon - rho) ** 2) / (4 * rho)) if epsilon > rho else 1.0)

    def epsilon(self, delta: float) -> float:
        """Epsilon = rho + 2 sqrt(rho log(1/delta)), the inverse in closed form."""
        if delta >= 1.0:
            return 0.0
        if delta == 0.0 or math.isinf(self._rho):
            return math.inf if self._rho else 0.0
        return self._rho + 2 * math.sqrt(self._rho * math.log(1 / delta))


class Zcdp(Accountant):
    """Sum of rho. Subsampling does not amplify zCDP, so sampled steps count in full."""

    name: ClassVar[str] = "zcdp"
    standing: ClassVar[Standing] = Standing.PROVEN

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The curve of the summed rho."""
        return ZcdpCurve(mechanism.zcdp(relation))


class Cdp(Accountant):
    """Epsilon = mean + deviation sqrt(2 log(1/delta)), the tail of a subgaussian privacy loss."""

    name: ClassVar[str] = "cdp"
    standing: ClassVar[Standing] = Standing.PROVEN

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The tail of the summed mean and deviation."""
        mean, deviation = mechanism.cdp(relation)

        def epsilon_at(delta: float) -> float:
            if delta <= 0.0 or math.isinf(mean):
                return math.inf
            return mean + deviation * math.sqrt(2 * math.log(1 / delta))

        return EpsilonCurve(epsilon_at)


class LinearLossCurve(Curve):
    """N(0, T sigma^2) against its shifts by a Binomial(T, q) number of whole gradients.

    What the sum of all releases tells of a record whose gradient is the same at every step, which is the last iterate
    of descent on linear losses. The ratio of the densities grows with the sum, so each delta is that of one threshold.

    Args:
        noise_multiplier: sigma > 0.
        sample_rate: q in (0, 1].
        steps: T >= 1.

    Example:
        >>> round(LinearLossCurve(2.0, 1.0, 4).epsilon(1e-5), 4) == round(LinearLossCurve(1.0, 1.0, 1).epsilon(1e-5), 4)
        True
    """

    def __init__(self, noise_multiplier: float, sample_rate: float, steps: int):
        self._std = math.sqrt(steps) * noise_multiplier
        mean, spread = steps * sample_rate, math.sqrt(steps * sample_rate * (1 - sample_rate))
        low, high = max(0, int(mean - 40 * spread - 40)), min(steps, int(mean + 40 * spread + 40))
        count = np.arange(low, high + 1)
        self._shifts = count / self._std
        chosen = gammaln(steps + 1) - gammaln(count + 1) - gammaln(steps - count + 1)
        self._log_mass = chosen + xlogy(count, sample_rate) + xlog1py(steps - count, -sample_rate)

    def delta(self, epsilon: float) -> float:
        """The larger delta of both directions."""
        added = 0.0
        above = self._threshold(epsilon)
        with_record = np.logaddexp.reduce(self._log_mass + log_ndtr(self._shifts - above))
        removed = math.exp(with_record) * -math.expm1(min(epsilon + float(log_ndtr(-above)) - with_record, 0.0))
        if -epsilon > self._log_ratio(-1e9):
            below = self._threshold(-epsilon)
            with_record = np.logaddexp.reduce(self._log_mass + log_ndtr(below - self._shifts))
            without = float(log_ndtr(below))
            added = math.exp(without) * -math.expm1(min(epsilon + with_record - without, 0.0))
        return max(added, removed)

    def _log_ratio(self, place: float) -> float:
        """Log of the ratio of densities with the record and without it, at a sum in units of its deviation."""
        return float(np.logaddexp.reduce(self._log_mass + self._shifts * place - self._shifts**2 / 2))

    def _threshold(self, loss: float) -> float:
        low, high = -1.0, 1.0
        while self._log_ratio(low) > loss:
            low *= 2
        while self._log_ratio(high) < loss:
            high *= 2
        return bracketed_root(lambda place: self._log_ratio(place) - loss, low, high)


def last_iterate_heuristic(ledger: Ledger | Mechanism, *, relation: Relation | str = Relation.ADD_REMOVE) -> TradeOff:
    """What the last iterate would tell if every loss were linear: a guess for deep networks, `claimed`, and no bound.

    Steinke, Nasr, Ganesh, Balle, Choquette-Choo, Jagielski, Hayes, Thakurta, Smith & Terzis 2024 (arXiv:2410.06186)
    found no attack on trained networks that exceeds it, and constructed losses that do. It may fall when steps are
    added, so it is no accountant: no budget can be kept by it.

    Args:
        ledger: of one kind of Gaussian step, plain or on Poisson samples, or such a mechanism.
        relation: of a mechanism; add/remove or zero-out.

    Raises:
        Refused: other mechanisms are in it, or the relation is replace-one.

    Example:
        >>> from tacit.accounting import accountant
        >>> run = Gaussian(1.0).poisson(0.01) * 5000
        >>> guess = last_iterate_heuristic(run)
        >>> guess.standing.value, float(guess.epsilon(1e-5)) < float(accountant("pld")(run).epsilon(1e-5))
        ('claimed', True)
    """
    if isinstance(ledger, Mechanism):
        ledger = Ledger.of(ledger, relation=relation)
    parts = list(ledger.mechanism.parts())
    step = parts[0][0] if len(parts) == 1 else None
    base, rate = (step.base, step.sample_rate) if isinstance(step, Poisson) else (step, 1.0)
    known = type(base) is Gaussian and base.noise_multiplier > 0
    if not known or ledger.relation is Relation.REPLACE_ONE:
        raise Refused(
            "last_iterate_heuristic needs one kind of Gaussian step, plain or on Poisson samples, under add_remove or "
            f"zero_out; got {ledger.mechanism} under {ledger.relation.value}."
        )
    assert isinstance(base, Gaussian)
    curve = LinearLossCurve(base.noise_multiplier, rate, parts[0][1])
    return TradeOff(curve, Standing.CLAIMED, ledger.relation, "last_iterate_heuristic")
