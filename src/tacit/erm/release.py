"""The contract of a method: `Terms` of a release, the `Release` itself, and `Method`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from tacit.accounting import Fact, Ledger, accountant, one_shot_facts
from tacit.accounting.claims import StatedCurve
from tacit.calibration import smallest
from tacit.erm.solver import NORM_SLACK, Problem, check_unit_rows
from tacit.errors import InvalidInput
from tacit.mechanisms import Approximate, Gaussian, Mechanism, ObjectivePerturbation
from tacit.noise import SecureStream, Stream, rounded_gaussian, rounded_radial
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Epsilon, Target, TradeOff

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Terms:
    """Terms of a release: its target, its ledger and its source of noise.

    Args:
        target: the guarantee to meet; pure where an `Epsilon` target has delta 0.
        ledger: entries are added before their noise is drawn; its relation is that of the guarantee.
        stream: source of all randomness; one that is not secure marks the ledger.
        read: arguments whose values were read from the data because they were not declared; each marks the ledger.
        sized: whether every setting derives from a declared size and not from the number of records.
        weakened: whether the ledger was marked because of what happened beside this release, as by `_open_ledger`.
        after: whether the release follows others in its ledger; by default, whether that holds entries.
    """

    target: Target
    ledger: Ledger
    stream: Stream
    read: tuple[str, ...] = ()
    sized: bool = False
    weakened: bool = False
    after: bool | None = None

    def __post_init__(self) -> None:
        for name in self.read:
            self.ledger.read_from_data(name)
        _mark_seeded(self.ledger, self.stream)
        if self.after is None:
            object.__setattr__(self, "after", bool(self.ledger.entries))

    @property
    def relation(self) -> Relation:
        """The neighbouring relation of the ledger."""
        return self.ledger.relation

    @property
    def certified(self) -> Relation:
        """The relation that a guarantee holds for: zero_out in place of add_remove where settings follow n."""
        return certified(self.relation, sized=self.sized)

    @property
    def standing(self) -> Standing:
        """The strongest standing that a guarantee under these terms can have."""
        marked = Standing.PROVEN if self.stream.secure and not (self.read or self.weakened) else Standing.CLAIMED
        return Standing.weakest(marked, self.ledger.facts.standing)

    def charge(self, mechanism: Mechanism, note: str, *, exact: bool = False) -> None:
        """Write `mechanism` into the ledger, with the facts of a release in one call.

        Args:
            mechanism: what is about to be released.
            note: what it is for.
            exact: whether all of its noise is `noisy` or `radial`, or drawn by another exact sampler.
        """
        with self.planned():
            self.ledger.begin(*one_shot_facts(unit=self.ledger.unit, secure=self.stream.secure, exact=exact))
        for part, steps in mechanism.parts():
            self.ledger.add(part, steps, note)

    def planned(self) -> AbstractContextManager[None]:
        """Context of a charge: those of one release are planned together, before its first noise."""
        return self.ledger.planned(after=bool(self.after))

    def noisy(self, values: Array, *, std: float, rounding: float = 0.0) -> Array:
        """`values` plus Gaussian noise, as they may be released: on the grid of `rounded_gaussian`.

        Args:
            values: float64, of any shape.
            std: noise multiplier times sensitivity of the exact values, > 0.
            rounding: what the sensitivity of the computed values exceeds that by, as a share; see `rounding`.
        """
        return rounded_gaussian(values, self.stream, std=std * (1 + rounding))

    def radial(self, values: Array, *, rate: float) -> Array:
        """`values` plus radial noise, as they may be released: on the grid of `rounded_radial`.

        Args:
            values: float64, of any shape.
            rate: epsilon over the sensitivity of the computed values, > 0.
        """
        return rounded_radial(values, self.stream, rate=rate)

    def release(self, theta: Array, mechanism: Mechanism, facts: Mapping[str, float]) -> Release:
        """`Release` of theta under these terms, with the strongest standing that they allow.

        Args:
            theta: (p, k), the released parameters.
            mechanism: what was charged for them.
            facts: public numbers.
        """
        return Release(theta, mechanism, self.certified, self.standing, facts)

    def gaussian(self, *, steps: int = 1) -> float:
        """The smallest noise multiplier of `steps` Gaussian releases that meets the target."""
        return self.noise_multiplier(lambda value: Gaussian(value) * steps)

    def noise_multiplier(self, build: Callable[[float], Mechanism]) -> float:
        """The smallest noise multiplier m for which `build(m)` meets the target."""
        return smallest("noise_multiplier", build, self.target, relation=self.relation).value

    def pure_epsilon(self) -> float:
        """The largest epsilon of pure DP that meets the target."""
        if isinstance(self.target, Epsilon):
            return self.target.epsilon
        least = smallest("1 / epsilon", lambda value: Approximate(1 / value, 0.0), self.target, relation=self.relation)
        return 1 / least.value


@dataclass(frozen=True, eq=False)
class Release:
    """A released parameter vector and its privacy cost; holds nothing else of the data.

    Attributes:
        theta: (p, k).
        mechanism: what was written into the ledger for it.
        relation: of `guarantee`.
        standing: of `guarantee`.
        facts: noise scale, steps, sensitivity and other public numbers, for tables.

    Example:
        >>> released = Release(np.zeros((2, 1)), Gaussian(2.0), Relation.ADD_REMOVE, Standing.PROVEN)
        >>> round(float(released.guarantee.mu()), 3)
        0.5
    """

    theta: Array
    mechanism: Mechanism
    relation: Relation
    standing: Standing
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def guarantee(self) -> TradeOff:
        """Central guarantee: of one record, against whoever sees theta."""
        return guarantee_of(self.mechanism, self.relation, self.standing)

    def summary(self, delta: float) -> str:
        """Central epsilon at `delta` with its standing."""
        return stated("central", self.guarantee, delta)


def stated(name: str, part: TradeOff, delta: float) -> str:
    """Epsilon of the guarantee called `name` at `delta`, with its relation and standing."""
    epsilon = f"epsilon {float(part.epsilon(delta)):.4g} at delta {delta:g}"
    return f"{name:15s}{epsilon}, {part.relation.value}, {part.standing.value}"


def certified(relation: Relation, *, sized: bool) -> Relation:
    """The relation that holds: without a declared size, one record less changes n and with it the settings.

    What is proven then keeps n: the place of a removed record is left blank (zero_out). Both have the same sensitivity.

    Example:
        >>> certified(Relation.ADD_REMOVE, sized=False).value
        'zero_out'
    """
    return Relation.ZERO_OUT if relation is Relation.ADD_REMOVE and not sized else relation


def guarantee_of(mechanism: Mechanism, relation: Relation, standing: Standing) -> TradeOff:
    """Guarantee of `mechanism` alone: in closed form where there is one, else by the exact accountant."""
    if isinstance(mechanism, Approximate):
        return TradeOff(ResponseCurve(mechanism.epsilon, mechanism.delta), standing, relation, "approximate")
    closed = any(isinstance(part, ObjectivePerturbation) for part, _ in mechanism.parts())
    found = accountant("naive" if closed else "pld")(mechanism, relation=relation)
    return replace(found, standing=Standing.weakest(found.standing, standing))


class ResponseCurve(StatedCurve):
    """The largest profile of an (epsilon, delta)-DP mechanism: randomised response that reveals all at times."""

    def mu(self, slack: float) -> float:
        """The least mu; at delta 0 that of randomised response, 2 Phi^-1(e^epsilon / (1 + e^epsilon))."""
        return super().mu(slack) if self._delta else 2 * float(ndtri(1 / (1 + math.exp(-self._epsilon))))


class Method(ABC):
    """One way to minimise an empirical risk privately; its fields are its public settings.

    Attributes:
        family: "objective" or "gradient"; "input" or "output" of methods in `tacit_papers.input_perturbation`.
        name: of the method in its family.
        standing: of its guarantee when noise comes from the secure stream.
        pure: whether it meets targets of delta 0.
        any_size: whether its proof holds whatever the number of records is beside a declared `Problem.size`.
        reads_prior_norm: whether `strength` reads its prior_norm.
        reads_loss: whether the shape of the loss enters, not only its quadratic approximation.

    Example:
        >>> from tacit.erm import METHODS
        >>> METHODS["objective"]().pure
        False
    """

    family: ClassVar[str]
    name: ClassVar[str]
    standing: ClassVar[Standing] = Standing.PROVEN
    pure: ClassVar[bool] = False
    any_size: ClassVar[bool] = False
    reads_prior_norm: ClassVar[bool] = False
    reads_loss: ClassVar[bool] = True

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """Automatic regularisation strength, from n, p, the target and a guess of ||theta*||; never from the data.

        The default suits methods that do not need strong convexity.
        """
        # lambda = 1e-5 is too small to bias a solution of norm about 10, and keeps the ridge equations regular.
        return 1e-5 * problem.size

    @abstractmethod
    def release(self, problem: Problem, terms: Terms) -> Release:
        """The private minimiser; writes the ledger before drawing noise.

        Raises:
            InvalidInput: the loss lacks what the proof needs.
        """


def ledger_and_stream(
    ledger: Ledger | None, stream: Stream | None, *, exact: bool | Fact = False
) -> tuple[Ledger, Stream]:
    """The given ledger and stream, or a new ledger and the secure stream, for a release in one call.

    A seeded stream marks the ledger; the facts of such a release are written into it.

    Args:
        ledger: of the release.
        stream: source of its noise.
        exact: whether all of its noise is drawn and added exactly; see `one_shot_facts`.
    """
    ledger = ledger if ledger is not None else Ledger()
    stream = stream if stream is not None else SecureStream()
    _mark_seeded(ledger, stream)
    ledger.begin(*one_shot_facts(unit=ledger.unit, secure=stream.secure, exact=exact))
    return ledger, stream


def _mark_seeded(ledger: Ledger, stream: Stream) -> None:
    if not stream.secure:
        ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)


def lipschitz(problem: Problem, method: str) -> float:
    """Lipschitz constant of one record's loss in theta: that of the loss in its scores, for rows of norm <= 1.

    `NORM_SLACK`, by which a row may be longer, is included.

    Raises:
        InvalidInput: the gradient of one record is unbounded, or a row is longer than 1.
    """
    check_unit_rows(problem.features)
    bound = problem.loss.lipschitz
    if not np.isfinite(bound):
        raise InvalidInput(
            f"loss must have bounded gradients for {method}; got {problem.loss}. "
            "Give residual_bound, or use method=Aggregate() of tacit_papers.input_perturbation."
        )
    return bound * (1 + NORM_SLACK)


def log_volume(problem: Problem) -> float:
    """What one record adds at most to log det of the Hessian; rows may be longer than 1 by `NORM_SLACK`."""
    return problem.loss.log_volume(problem.strength / (1 + NORM_SLACK) ** 2)
