"""`Accountant`: the base class of all accountants, a pure call from a ledger to its trade-off curve."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from tacit import check
from tacit.accounting.ledger import Ledger
from tacit.errors import Refused
from tacit.mechanisms import Mechanism, alternatives
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, GaussianCurve, TradeOff, worst

PERFECT = GaussianCurve(0.0)


class Accountant(ABC):
    """Reads one facet of the mechanisms in a ledger and answers with a `TradeOff`.

    A subclass gives `curve`, or `curves` when it also has a proven lower bound. It raises `Refused` when a mechanism
    lacks the facet; it never guesses.

    Attributes:
        name: name of the accountant in JSON, on the command line and in tables.
        standing: best standing of its answers.

    Example:
        >>> from tacit.accounting import accountant
        >>> from tacit.mechanisms import Gaussian
        >>> round(accountant("pld")(Gaussian(2.0).poisson(0.01) * 1000).epsilon(1e-5), 3)
        0.622
    """

    name: ClassVar[str]
    standing: ClassVar[Standing]

    def __call__(self, ledger: Ledger | Mechanism, *, relation: Relation | str = Relation.ADD_REMOVE) -> TradeOff:
        """The trade-off curve of `ledger` (whose own relation counts), or of one mechanism under `relation`."""
        if isinstance(ledger, Mechanism):
            ledger = Ledger.of(ledger, relation=relation)
        check.instance("ledger", ledger, Ledger, "a Ledger or a mechanism such as Gaussian(1.0)")
        if not ledger.entries:
            standing = Standing.weakest(Standing.PROVEN, ledger.standing)
            return TradeOff(PERFECT, standing, ledger.relation, self.name, floor=PERFECT)
        found = [self.curves(option.accountable(), ledger.relation) for option in alternatives(ledger.mechanism)]
        curve = worst([curve for curve, _ in found])
        floors = [floor for _, floor in found if floor is not None]
        floor = worst(floors) if floors else None
        standing = Standing.weakest(self.standing, ledger.standing)
        return TradeOff(curve, standing, ledger.relation, self.name, floor=floor)

    def curves(self, mechanism: Mechanism, relation: Relation) -> tuple[Curve, Curve | None]:
        """The curve to answer from, and a proven lower bound on leakage where there is one."""
        return self.curve(mechanism, relation), None

    def grouped(self, ledger: Ledger, size: int) -> TradeOff:
        """The trade-off curve for groups of `size` records; what that of single records implies (`TradeOff.group`)."""
        return self(ledger).group(size)

    def rough(self) -> Self:
        """A faster accountant whose answers are never smaller, for progress reports; itself by default."""
        return self

    def sketch(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """A quick curve near the one to answer from, for searches, no bound; raises `Refused` without one."""
        raise Refused(f"{self.name} has no sketch of {mechanism} under {relation.value}; ask for its curve.")

    @abstractmethod
    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The curve to answer from."""
