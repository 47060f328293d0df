"""Targets: predicates on a `TradeOff` that a guarantee must meet."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from tacit import check
from tacit.tradeoff.tradeoff import TradeOff


class Target(ABC):
    """A predicate on a trade-off curve; more noise never turns a met target into a missed one.

    Example:
        >>> from tacit.accounting import accountant
        >>> from tacit.mechanisms import Gaussian
        >>> Mu(1.0).met(accountant("clt")(Gaussian(2.0)))
        True
    """

    @abstractmethod
    def excess(self, tradeoff: TradeOff) -> float:
        """By how much the curve misses the target, in logs where possible; <= 0 exactly when it is met."""

    def met(self, tradeoff: TradeOff) -> bool:
        """Whether the curve meets the target."""
        return self.excess(tradeoff) <= 0.0


def check_target(value: object) -> Target:
    """`value` if it is a target; raises `InvalidInput` otherwise.

    Example:
        >>> check_target(Mu(0.5))
        Mu(mu=0.5)
    """
    return check.instance("target", value, Target, "one such as Epsilon(1.0, 1e-5)")


@dataclass(frozen=True)
class Epsilon(Target):
    """(epsilon, delta)-DP.

    Attributes:
        epsilon: > 0.
        delta: in [0, 1].

    Example:
        >>> Epsilon(1.0, delta=1e-5)
        Epsilon(epsilon=1.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon, "Use a finite number such as 1.0.")
        check.delta(self.delta)

    def excess(self, tradeoff: TradeOff) -> float:
        """log(reached / wanted)."""
        return _log_ratio(tradeoff.epsilon(self.delta), self.epsilon)


@dataclass(frozen=True)
class Advantage(Target):
    """Every membership attack has at most this advantage.

    Attributes:
        advantage: true minus false positive rate, in (0, 1).

    Example:
        >>> Advantage(0.1)
        Advantage(advantage=0.1)
    """

    advantage: float

    def __post_init__(self) -> None:
        check.probability("advantage", self.advantage, open_low=True, open_high=True)

    def excess(self, tradeoff: TradeOff) -> float:
        """log(reached / wanted)."""
        return _log_ratio(tradeoff.advantage(), self.advantage)


@dataclass(frozen=True)
class Mu(Target):
    """mu-GDP, up to the slack of `TradeOff.mu`.

    Attributes:
        mu: > 0.

    Example:
        >>> Mu(0.5)
        Mu(mu=0.5)
    """

    mu: float

    def __post_init__(self) -> None:
        check.positive("mu", self.mu)

    def excess(self, tradeoff: TradeOff) -> float:
        """log(reached / wanted)."""
        return _log_ratio(tradeoff.mu(), self.mu)


@dataclass(frozen=True)
class Errors(Target):
    """Every attack with type I error `alpha` has type II error at least `beta`.

    Attributes:
        alpha: in [0, 1].
        beta: in [0, 1 - alpha).

    Example:
        >>> Errors(alpha=0.05, beta=0.8)
        Errors(alpha=0.05, beta=0.8)
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        check.probability("alpha", self.alpha)
        check.probability("beta", self.beta)
        if self.beta >= 1 - self.alpha:
            raise check.fail("beta", f"below 1 - alpha = {1 - self.alpha:g}", self.beta, "No noise reaches it.")

    def excess(self, tradeoff: TradeOff) -> float:
        """Shortfall of the type II error."""
        return self.beta - float(tradeoff.beta(self.alpha))


def _log_ratio(reached: float, wanted: float) -> float:
    """log(reached / wanted), with the sign of reached - wanted even where the ratio rounds to 1."""
    if reached <= 0.0:
        return -math.inf
    log = math.log(reached / wanted)
    return log if log != 0.0 else float(reached) - wanted


def target_of(
    *, epsilon: float | None = None, delta: float | None = None, advantage: float | None = None, mu: float | None = None
) -> Target:
    """The one target that the given numbers describe.

    Args:
        epsilon: > 0, with `delta`.
        delta: in [0, 1].
        advantage: in (0, 1).
        mu: > 0.

    Raises:
        InvalidInput: none or several of epsilon, advantage and mu are given, or a number breaks its rule.

    Example:
        >>> target_of(mu=0.5)
        Mu(mu=0.5)
    """
    given = [name for name, value in (("epsilon", epsilon), ("advantage", advantage), ("mu", mu)) if value is not None]
    if len(given) != 1:
        raise check.fail("target", "exactly one of epsilon (with delta), advantage, mu", ", ".join(given) or "none")
    if epsilon is not None:
        if delta is None:
            raise check.fail("delta", "given with epsilon", None, "Use a value below 1/n, e.g. 1e-06 for n=60000.")
        return Epsilon(epsilon, delta)
    return Advantage(advantage) if advantage is not None else Mu(mu or 0.0)
