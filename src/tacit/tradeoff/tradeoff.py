"""`TradeOff`: a trade-off curve with the standing of its certificate, and its answers.

The trade-off plot: type I error against type II error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit import check
from tacit.errors import NotABound, Refused
from tacit.relation import Relation
from tacit.standing import Standing, leakage
from tacit.tradeoff.curve import Curve, ErrorPoints

_STYLE = {
    Standing.PROVEN: "-",
    Standing.CONDITIONAL: (0, (9, 2)),
    Standing.ASYMPTOTIC: "--",
    Standing.BAYESIAN: "-.",
    Standing.CLAIMED: ":",
    Standing.MEASURED: "-",
}


def draw(curve: Curve, standing: Standing, source: str, axes: Any = None) -> Any:
    """Draw one trade-off curve on matplotlib axes.

    Args:
        curve: what is drawn.
        standing: its standing, which sets the line style.
        source: the accountant or attack that the curve comes from, for the legend.
        axes: matplotlib axes; new ones if None.

    Returns:
        The axes.
    """
    if axes is None:
        from matplotlib.figure import Figure

        axes = Figure(figsize=(4.5, 4.5), layout="constrained").add_subplot()
    alpha = np.concatenate([np.geomspace(1e-6, 1e-2, 100), np.linspace(1e-2, 1.0, 200)])
    axes.plot(alpha, curve.beta(alpha), linestyle=_STYLE[standing], label=f"{source} ({standing.value})")
    axes.plot([0, 1], [1, 0], color="0.7", linewidth=0.8)
    axes.set(xlabel="type I error (false alarms)", ylabel="type II error (misses)", xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    return axes


class Answer(float):
    """A float (the conservative side) with its standing and its interval.

    `lower` and `upper` bound the true value. Reading the side that no theorem covers raises `NotABound`; an unknown
    side is None.

    Example:
        >>> answer = Answer(1.0, Standing.PROVEN, 0.9, 1.0)
        >>> answer + 1, answer.interval
        (2.0, (0.9, 1.0))
        >>> Answer(1.0, Standing.CLAIMED, None, 1.0).upper
        Traceback (most recent call last):
        ...
        tacit.errors.NotABound: upper must be read from a proven result; got a claimed one, which bounds nothing.
    """

    standing: Standing
    _lower: float | None
    _upper: float | None

    def __new__(cls, value: float, standing: Standing, lower: float | None, upper: float | None) -> Answer:
        """An answer.

        Args:
            value: the conservative side of the interval.
            standing: how far the number can be trusted.
            lower: bound from below; None if unknown.
            upper: bound from above; None if unknown.

        Raises:
            Refused: a number is NaN, or the lower bound is above the upper one.
        """
        ends = [end for end in (lower, upper) if end is not None]
        if any(math.isnan(number) for number in (value, *ends)) or ends != sorted(ends):
            said = f"an answer must be a number within its bounds; got {float(value)!r} in [{lower!r}, {upper!r}]"
            raise Refused(f"{said}. Please report this sentence; no answer is given.")
        answer = super().__new__(cls, value + 0.0)  # No -0.0.
        answer.standing = standing
        answer._lower = None if lower is None else lower + 0.0
        answer._upper = None if upper is None else upper + 0.0
        return answer

    def mapped(self, decreasing: Callable[[float], float]) -> Answer:
        """The answer to a question that is a decreasing function of this one."""
        low = None if self._upper is None else decreasing(self._upper)
        high = None if self._lower is None else decreasing(self._lower)
        return Answer(decreasing(float(self)), self.standing, low, high)

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """(lower, upper) as far as theorems or measurements reach; (None, None) for every weaker standing."""
        if self.standing in (Standing.PROVEN, Standing.MEASURED):
            return self._lower, self._upper
        return None, None

    @property
    def lower(self) -> float | None:
        """Proven (or, for an audit, measured) lower bound on the true value."""
        _only(self.standing, "lower", Standing.PROVEN, Standing.MEASURED)
        return self._lower

    @property
    def upper(self) -> float | None:
        """Proven upper bound on the true value."""
        _only(self.standing, "upper", Standing.PROVEN, Standing.MEASURED)
        return self._upper


_UNDERFLOW = math.ulp(0.0)  # What an upper bound on delta is where it rounds to 0 and is not.
_FAIR = 0.01  # Largest regret at which Gomez et al. 2025 recommend to report mu alone.


@dataclass(frozen=True)
class MuReport:
    """What a report of Gaussian DP needs.

    Attributes:
        mu: the smallest mu that covers the curve up to `slack`.
        slack: total variation that mu leaves uncovered.
        regret: the largest error in the two error rates of attacks by reading them off G_mu instead of the curve.

    Example:
        >>> MuReport(Answer(0.5, Standing.PROVEN, 0.5, 0.5), 1e-5, 0.02).recommended
        False
    """

    mu: Answer
    slack: float
    regret: float

    @property
    def recommended(self) -> bool:
        """Whether mu alone is a fair report of the curve: its regret is at most .01."""
        return self.regret <= _FAIR


@dataclass(frozen=True)
class TradeOff:
    """A trade-off curve: an attacker's smallest type II error at each type I error, with its standing.

    Attributes:
        curve: the curve that answers are read from: the certificate of a `proven` result, else the claimed,
            asymptotic or Bayesian curve, or the error rates that a `measured` attack reached.
        standing: how far the curve can be trusted.
        relation: the neighbouring relation of the curve.
        source: the accountant or attack that the curve comes from.
        floor: of two-sided accountants, a curve that the true leakage is proven to exceed.
        confidence: of a measured result, simultaneous over the whole curve.

    Example:
        >>> from tacit.tradeoff import GaussianCurve
        >>> guarantee = TradeOff(GaussianCurve(1.0), Standing.PROVEN, Relation.ADD_REMOVE, "pld")
        >>> round(guarantee.epsilon(1e-5), 3), round(guarantee.advantage(), 3), round(guarantee.beta(0.05), 3)
        (4.377, 0.383, 0.74)
    """

    curve: Curve
    standing: Standing
    relation: Relation
    source: str
    floor: Curve | None = None
    confidence: float | None = None

    @property
    def upper(self) -> Curve:
        """The proven upper bound on leakage; raises `NotABound` for every other standing."""
        _only(self.standing, "upper", Standing.PROVEN)
        return self.curve

    @property
    def lower(self) -> Curve | None:
        """A lower bound on leakage: proven (None when the accountant is one-sided) or measured."""
        _only(self.standing, "lower", Standing.PROVEN, Standing.MEASURED)
        return self.curve if self.standing is Standing.MEASURED else self.floor

    def group(self, size: int) -> TradeOff:
        """The trade-off curve for groups of `size` >= 1 records (see `Curve.group`).

        A lower bound on what one record leaks is one for any group that holds it, and stays.

        Example:
            >>> from tacit.tradeoff import GaussianCurve
            >>> single = TradeOff(GaussianCurve(0.5), Standing.PROVEN, Relation.ADD_REMOVE, "pld")
            >>> float(single.group(4).mu())
            2.0
        """
        size = check.count("size", size)
        return self if self.standing is Standing.MEASURED else replace(self, curve=self.curve.group(size))

    def as_relation(self, relation: Relation | str) -> TradeOff:
        """What this guarantee implies under another relation, which accounting under that relation itself may beat.

        Replacing a record is removing it and adding another (or blanking and filling it): a group of two. Nothing
        follows for adding or removing one from a guarantee for replacing, which may publish the number of records.

        Raises:
            Refused: nothing is implied, or the result is measured: an attack on one relation bounds no other.
        """
        relation = Relation.parse(relation)
        if relation is self.relation:
            return self
        if relation is not Relation.REPLACE_ONE or self.standing is Standing.MEASURED:
            said = f"a {self.standing.value} guarantee under {self.relation.value}"
            raise Refused(f"{said} implies none under {relation.value}. Account for the mechanism under that relation.")
        source = f"{self.source}, from {self.relation.value}"
        return replace(self, curve=self.curve.group(2), floor=None, relation=relation, source=source)

    def epsilon(self, delta: float) -> Answer:
        """The smallest epsilon at `delta` in [0, 1]."""
        delta = check.delta(delta)
        return self._leakage(lambda curve: curve.epsilon(delta) if delta < 1.0 else 0.0)

    def delta(self, epsilon: float) -> Answer:
        """The smallest delta at `epsilon` >= 0."""
        epsilon = check.epsilon(epsilon)
        answer = self._leakage(lambda curve: curve.delta(epsilon))
        if answer > 0.0 or self.standing is Standing.MEASURED or self.curve.epsilon(0.0) <= epsilon:
            return answer
        return Answer(_UNDERFLOW, self.standing, answer._lower, _UNDERFLOW)

    def mu(self, *, slack: float = 1e-9) -> Answer:
        """The smallest mu of Gaussian DP that covers the curve up to `slack` of total variation.

        delta(eps) <= delta_mu(eps) + slack for every eps >= 0. Subsampled mechanisms are GDP only up to such
        a slack; where the curve is exactly Gaussian the slack is not used.
        """
        slack = check.probability("slack", slack)
        return self._leakage(lambda curve: curve.mu(slack), lambda floor: floor.mu_floor(slack))

    def mu_regret(self, *, slack: float = 1e-9) -> float:
        """The loss from reporting `mu()` instead of the curve, see `Curve.regret`; 0 if there is none."""
        return (self.floor or self.curve).regret(float(self.mu(slack=slack)))

    def mu_report(self, *, slack: float = 1e-5) -> MuReport:
        """Mu with its slack and its regret, and whether mu alone is a fair report: it is from a regret of .01 down.

        Args:
            slack: in [0, 1], see `mu`. At 1e-9 the far tail of a sampled mechanism decides, and the regret of its mu is
                about twice as large.

        Source: Gomez, Kulynych, Kaissis, Calmon, Balle & Honkela 2025, "(epsilon, delta) considered harmful".

        Example:
            >>> from tacit.tradeoff import GaussianCurve
            >>> report = TradeOff(GaussianCurve(1.0), Standing.PROVEN, Relation.ADD_REMOVE, "pld").mu_report()
            >>> float(report.mu), report.regret, report.recommended
            (1.0, 0.0, True)
        """
        mu = self.mu(slack=slack)
        return MuReport(mu, slack, (self.floor or self.curve).regret(float(mu)))

    def advantage(self) -> Answer:
        """The largest true minus false positive rate of any attack, delta(0)."""
        return self._leakage(lambda curve: curve.advantage())

    def beta(self, alpha: float) -> Answer:
        """The smallest type II error of any attack of type I error `alpha` in [0, 1]."""
        alpha = check.probability("alpha", alpha)
        at = np.array([alpha])
        if self.standing is Standing.MEASURED:
            reached = float(self.curve.beta_ceiling(at)[0])
            return Answer(reached, self.standing, None, reached)
        ceiling = float(self.floor.beta_ceiling(at)[0]) if self.floor else None
        value = float(self.curve.beta(at)[0])
        return Answer(value, self.standing, value, ceiling)

    def tpr(self, fpr: float) -> Answer:
        """The largest true positive rate of any attack of false positive rate `fpr` in [0, 1]."""
        beta = self.beta(check.probability("fpr", fpr))
        return beta.mapped(lambda miss: 1 - miss)

    def attribute_inference(self, baseline: float) -> Answer:
        """Attribute inference: the largest probability of a right guess of a training record's attribute.

        Args:
            baseline: in [0, 1], the probability of that guess against a model trained on the neighbouring data. The
                guess is a test of one world against the other with type I error `baseline`, so its success is at
                most 1 - beta(baseline).
        """
        return self.tpr(check.probability("baseline", baseline))

    def bayes_risk(self, prior: float) -> Answer:
        """Bayes risk: min over tests of prior * P(miss) + (1 - prior) * P(false alarm).

        `prior` in [0, 1] is that of membership. With r = (1 - prior) / prior the minimum is
        prior * (1 - delta(log r)) for r >= 1, and by symmetry of the curve (1 - prior) * (1 - delta(-log r)) for r < 1.
        """
        prior = check.probability("prior", prior)
        rare, common = min(prior, 1 - prior), max(prior, 1 - prior)
        if rare == 0.0:
            return Answer(0.0, self.standing, 0.0, 0.0)
        return self.delta(float(np.log(common / rare))).mapped(lambda delta: rare * (1 - delta))

    def __le__(self, claim: TradeOff) -> bool:
        """`audit <= claim`: whether a measured lower bound is compatible with a claimed curve.

        False means that the audit refutes the claim at the audit's confidence.

        Raises:
            NotABound: the left side is no measured result.
            InvalidInput: the two are about different relations, or the claim is no trade-off function.
        """
        if not isinstance(claim, TradeOff):
            hint = "E.g. tacit.accountant('pld')(ledger), or the .tradeoff of a result of tacit.account."
            raise check.fail("claim", "a TradeOff", type(claim).__name__, hint)
        if self.standing is not Standing.MEASURED or not isinstance(self.curve, ErrorPoints):
            raise NotABound("audit <= claim must have a measured result on its left side.")
        if claim.relation is not self.relation:
            said = self.relation.value
            raise check.fail("relation", f"{claim.relation.value}, as the claim's is", said, "Audit the claim's game.")
        alpha, beta = self.curve.alpha, self.curve.beta_reached
        return not (claim.curve.refuted_by(alpha, beta) or claim.curve.refuted_by(beta, alpha))

    def plot(self, axes: object = None) -> object:
        """Draw type I against type II error on matplotlib `axes`, new ones if None; returns them."""
        return draw(self.curve, self.standing, self.source, axes)

    def _repr_html_(self) -> str:
        epsilon, advantage = (leakage(float(each), self.standing) for each in (self.epsilon(1e-5), self.advantage()))
        return (
            f"<b>{self.source}</b> ({self.standing.value}, {self.relation.value}): "
            f"&epsilon; = {epsilon} at &delta; = 1e-05, advantage {advantage}"
        )

    def _leakage(self, read: Callable[[Curve], float], read_floor: Callable[[Curve], float] | None = None) -> Answer:
        value = float(read(self.curve))
        if self.standing is Standing.MEASURED:
            return Answer(value, self.standing, value, None)
        return Answer(value, self.standing, float((read_floor or read)(self.floor)) if self.floor else None, value)


def _only(standing: Standing, side: str, *allowed: Standing) -> None:
    if standing not in allowed:
        why = "holds only if its assumed facts do" if standing is Standing.CONDITIONAL else "bounds nothing"
        raise NotABound(f"{side} must be read from a proven result; got a {standing.value} one, which {why}.")
