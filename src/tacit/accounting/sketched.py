"""Rough answers of an accountant, from which a search may begin."""

from __future__ import annotations

from typing import ClassVar

from tacit.accounting.base import Accountant
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve


class Sketched(Accountant):
    """Answers from the sketches of another accountant: quick, near its answers, bounds of nothing.

    Raises `Refused` for a mechanism of which that accountant has no sketch.

    Args:
        exact: the accountant whose answers are approached.
    """

    name: ClassVar[str] = "sketch"
    standing: ClassVar[Standing] = Standing.ASYMPTOTIC

    def __init__(self, exact: Accountant):
        self._exact = exact

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The sketch."""
        return self._exact.sketch(mechanism, relation)
