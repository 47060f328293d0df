"""What every method is given and gives back: `Terms`, `Release`, and the `Method` contract."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tacit.accounting import Ledger, accountant
from tacit.calibration import smallest
from tacit.erm.solver import Problem
from tacit.errors import InvalidInput
from tacit.mechanisms import Approximate, Gaussian, Mechanism, ObjectivePerturbation
from tacit.noise import Stream
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, Epsilon, GaussianCurve, Target, TradeOff

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Terms:
    """What a release may cost, and where noise comes from and is written down.

    Args:
        target: the guarantee to meet; pure where an `Epsilon` target has delta 0.
        ledger: entries are added before their noise is drawn; its relation is that of the guarantee.
        stream: source of all randomness; one that is not secure marks the ledger.
        read: what was read from the data because it was not declared; each marks the ledger.
    """

    target: Target
    ledger: Ledger
    stream: Stream
    read: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what in self.read:
            self.ledger.read_from_data(what)
        if not self.stream.secure:
            self.ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)

    @property
    def relation(self) -> Relation:
        """The neighbouring relation of the ledger."""
        return self.ledger.relation

    @property
    def standing(self) -> Standing:
        """The best that a guarantee under these terms can be."""
        return Standing.PROVEN if self.stream.secure and not self.read else Standing.CLAIMED

    def charge(self, mechanism: Mechanism, note: str) -> None:
        """Write `mechanism` into the ledger."""
        for part, steps in mechanism.parts():
            self.ledger.add(part, steps, note)

    def gaussian(self, *, steps: int = 1) -> float:
        """The smallest noise multiplier of `steps` Gaussian releases that meets the target."""
        return smallest(
            "noise_multiplier", lambda value: Gaussian(value) * steps, self.target, relation=self.relation
        ).value

    def pure_epsilon(self) -> float:
        """The largest epsilon of pure DP that meets the target."""
        if isinstance(self.target, Epsilon):
            return self.target.epsilon
        least = smallest("1 / epsilon", lambda value: Approximate(1 / value, 0.0), self.target, relation=self.relation)
        return 1 / least.value

    def approximate(self, name: str) -> tuple[float, float]:
        """(epsilon, delta) for formulas that know nothing else; raises `InvalidInput` for other targets."""
        if not isinstance(self.target, Epsilon) or not 0 < self.target.delta < 1:
            raise InvalidInput(f"target must be Epsilon with delta in (0, 1) for {name}; got {self.target}.")
        return self.target.epsilon, self.target.delta


@dataclass(frozen=True, eq=False)
class Release:
    """A released parameter vector and what it cost; holds nothing else of the data.

    Attributes:
        theta: (p, k).
        mechanism: what was written into the ledger for it.
        relation: of `guarantee`.
        standing: of `guarantee`.
        local_mu: mu of a record's own perturbed message under replace-one; None where rows stay with the curator.
        local_standing: of `local_guarantee`; `claimed` where only a part of the record is covered.
        floor_mu: for claimed guarantees, the mu that the true leakage is proven to reach.
        facts: noise scale, steps, sensitivity and other public numbers, for tables.
    """

    theta: Array
    mechanism: Mechanism
    relation: Relation
    standing: Standing
    local_mu: float | None = None
    local_standing: Standing = Standing.PROVEN
    floor_mu: float | None = None
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def guarantee(self) -> TradeOff:
        """Central: of one record, against whoever sees theta."""
        return guarantee_of(self.mechanism, self.relation, self.standing)

    @property
    def local_guarantee(self) -> TradeOff | None:
        """Of one record, against whoever sees the message that it sent."""
        if self.local_mu is None:
            return None
        standing = Standing.weakest(self.standing, self.local_standing)
        return _gaussian(self.local_mu, Relation.REPLACE_ONE, standing)

    def summary(self, delta: float) -> str:
        """Central, local and proven least epsilon at `delta`, each with its standing, and their exchange rate."""
        parts = {"central": self.guarantee, "local": self.local_guarantee, "leaks at least": self.floor}
        lines = [
            f"{name:15s}epsilon {float(part.epsilon(delta)):.4g} at delta {delta:g}, {part.relation.value}, "
            f"{part.standing.value}"
            for name, part in parts.items()
            if part is not None
        ]
        if self.local_guarantee is not None:
            lines.append(f"exchange rate  local mu = {self.exchange_rate:.4g} x central mu")
        return "\n".join(lines)

    @property
    def exchange_rate(self) -> float:
        """mu of the local guarantee over mu of the central one; NaN where rows stay with the curator."""
        return math.nan if self.local_mu is None else self.local_mu / float(self.guarantee.mu())

    @property
    def floor(self) -> TradeOff | None:
        """Leakage that is reached exactly on an instance which the claim covers."""
        return None if self.floor_mu is None else _gaussian(self.floor_mu, self.relation, Standing.PROVEN)


def guarantee_of(mechanism: Mechanism, relation: Relation, standing: Standing) -> TradeOff:
    """What `mechanism` alone costs: in closed form where there is one, else by the exact accountant."""
    own = Ledger.of(mechanism, relation=relation)
    own.standing = standing
    if isinstance(mechanism, Approximate):
        curve = ResponseCurve(mechanism.epsilon, mechanism.delta)
        return TradeOff(curve, standing, relation, "approximate")
    closed = any(isinstance(part, ObjectivePerturbation) for part, _ in mechanism.parts())
    return accountant("naive" if closed else "pld")(own)


class ResponseCurve(Curve):
    """The largest profile of an (epsilon, delta)-DP mechanism, exact at its own point.

    delta(e) = delta + (1 - delta) (e^epsilon - e^e)_+ / (e^epsilon + 1): randomised response that reveals all with
    probability delta (Kairouz, Oh & Viswanath 2015).
    """

    def __init__(self, epsilon: float, delta: float):
        self._epsilon = epsilon
        self._delta = delta

    def delta(self, epsilon: float) -> float:
        short = max(-math.expm1(epsilon - self._epsilon), 0.0) / (1 + math.exp(-self._epsilon))
        return self._delta + (1 - self._delta) * short

    def epsilon(self, delta: float) -> float:
        if delta < self._delta:
            return math.inf
        share = (delta - self._delta) / (1 - self._delta) * (1 + math.exp(-self._epsilon))
        return max(self._epsilon + math.log1p(-share), 0.0) if share < 1 else 0.0


def _gaussian(mu: float, relation: Relation, standing: Standing) -> TradeOff:
    return TradeOff(GaussianCurve(mu), standing, relation, "gaussian", floor=GaussianCurve(mu))


class Method(ABC):
    """One way to minimise an empirical risk privately; its fields are its public settings.

    `standing` is that of its guarantee when noise comes from the secure stream; `verdict` says why in a sentence.
    """

    family: ClassVar[str]
    name: ClassVar[str]
    standing: ClassVar[Standing]
    verdict: ClassVar[str]
    pure: ClassVar[bool] = False

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """A public choice of the regularisation, from n, p, the target and a guess of ||theta*||; never from the data.

        The default suits methods that do not need strong convexity.
        """
        return 1e-5 * problem.records

    @abstractmethod
    def release(self, problem: Problem, terms: Terms) -> Release:
        """The private minimiser; writes the ledger before drawing noise.

        Raises `InvalidInput` when the loss lacks what the proof needs.
        """


def lipschitz(problem: Problem, method: str) -> float:
    """The loss's Lipschitz constant; raises `InvalidInput` where the gradient of one record is unbounded."""
    bound = problem.loss.lipschitz
    if not np.isfinite(bound):
        raise InvalidInput(
            f"loss must have bounded gradients for {method}; got {problem.loss}. "
            "Give residual_bound, or use method='input', variant='aggregate'."
        )
    return bound
