"""What every accountant is: a pure call from what ran to what it costs."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from tacit import check
from tacit.accounting.ledger import Ledger
from tacit.mechanisms import Mechanism, alternatives
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, GaussianCurve, TradeOff, worst

PERFECT = GaussianCurve(0.0)


class Accountant(ABC):
    """Reads one facet of the mechanisms in a ledger and answers with a `TradeOff`.

    A subclass gives `curve`, and `floor` when it can bound its own error from below. It raises `Refused` when a
    mechanism lacks the facet; it never guesses.
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
        found = [self.curves(each.accountable(), ledger.relation) for each in alternatives(ledger.mechanism)]
        curve = worst([curve for curve, _ in found])
        floors = [floor for _, floor in found if floor is not None]
        floor = worst(floors) if floors else None
        standing = Standing.weakest(self.standing, ledger.standing)
        return TradeOff(curve, standing, ledger.relation, self.name, floor=floor)

    def curves(self, mechanism: Mechanism, relation: Relation) -> tuple[Curve, Curve | None]:
        """The curve to answer from, and a proven lower bound on leakage where there is one."""
        return self.curve(mechanism, relation), None

    def rough(self) -> Self:
        """One that answers sooner and never says less, for progress; itself unless there is such a one."""
        return self

    @abstractmethod
    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The curve to answer from."""
