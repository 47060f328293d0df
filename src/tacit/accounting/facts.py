"""The facts that a training guarantee rests on besides its theorem: a closed list, and how each one is known.

A fact is `enforced` by construction, `checked` on the run itself (how often, last at which step), `declared` by name by
the user, or `assumed`: then the guarantee is conditional on it. A check is a test of stated power, not a proof; it
guards against mistakes, not against a programmer who evades it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tacit import check


class How(StrEnum):
    """How a fact is known, strongest first."""

    ENFORCED = "enforced"
    CHECKED = "checked"
    DECLARED = "declared"
    ASSUMED = "assumed"


FACTS: dict[str, str] = {
    "batches": "batches are those that the sampler drew, and each is stepped on once",
    "rows": "a row of a batch is made of its own record and public values",
    "model_rows": "the model treats the rows of a batch apart, in value and gradient",
    "model_state": "nothing that the forward pass reads follows earlier records",
    "loss_rows": "the loss of a record, hence its gradient, is computed from that record and public values",
    "numbers_read": "no number read from private values steers the run",
    "weights": "weights change by private releases alone",
    "unit": "the privacy unit is the one that is named",
    "settings": "clipping norm, noise, learning rate and sizes are public",
    "randomness": "noise and batches come from a secure stream",
    "whole_ledger": "the ledger holds all that these records paid for in this run",
    "preprocessing": "preprocessing, model choice and settings come from public data",
    "released": "only weights and ledger leave the run",
    "one_process": "one process trains the model",
    "arithmetic": "rounding of clipping and noise stays within the stated slack",
    "package": "the code that ran is the package as published",
}
"""Identifier -> what must hold. Ledgers and cards list the facts of a run in this order."""


@dataclass(frozen=True)
class Fact:
    """One fact of a run.

    Attributes:
        id: a key of `FACTS`.
        how: how it is known.
        times: how often it was checked.
        last_step: the step of the last check, counted from 1; None where it is not checked by step.
        says: one sentence: what was checked or declared, or what is missing and how to get it.
    """

    id: str
    how: How
    times: int = 0
    last_step: int | None = None
    says: str = ""

    def __post_init__(self) -> None:
        check.choice("id", self.id, FACTS)
        object.__setattr__(self, "how", How(check.choice("how", self.how, [each.value for each in How])))

    def spec(self) -> dict[str, Any]:
        """JSON form."""
        last = {"last_step": self.last_step} if self.last_step is not None else {}
        return {"id": self.id, "how": self.how.value, "times": self.times, **last, "says": self.says}

    @classmethod
    def from_spec(cls, spec: object) -> Fact:
        """The fact of a JSON table; raises `InvalidInput` for any other table."""
        table = check.instance("facts", spec, dict, "a list of tables with id and how")
        check.keys("facts", table, ("id", "how", "times", "last_step", "says"))
        last = table.get("last_step")
        return cls(
            check.text("id", table.get("id")),
            How(check.choice("how", table.get("how"), [each.value for each in How])),
            check.count("times", table.get("times", 0), minimum=0),
            None if last is None else check.count("last_step", last, minimum=0),
            str(table.get("says", "")),
        )


_NOT_KNOWN = Fact("weights", How.ENFORCED)


class Facts:
    """The facts of one run, in the order of `FACTS`; a weaker way of knowing is never forgotten.

    Example:
        >>> facts = Facts()
        >>> facts.note("model_rows", How.ASSUMED, "no batch was probed yet")
        >>> facts.checked("model_rows", step=1, says="half of the rows replaced")
        >>> facts.checked("model_rows", step=2, says="half of the rows replaced")
        >>> [(fact.how.value, fact.times, fact.last_step) for fact in facts]
        [('checked', 2, 2)]
        >>> facts.missing("numbers_read", "loop.py:31 reads a number")
        >>> facts.checked("numbers_read", step=3)
        >>> [fact.id for fact in facts.assumed]
        ['numbers_read']
    """

    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}
        self._missing: set[str] = set()
        self._live: dict[str, Callable[[], str]] = {}

    def __iter__(self) -> Iterator[Fact]:
        for name, found in self._live.items():
            if says := found():
                self._facts[name] = Fact(name, How.ASSUMED, says=says)
            elif name not in self._missing and self._facts.get(name, _NOT_KNOWN).how is How.ASSUMED:
                del self._facts[name]
        return iter([self._facts[name] for name in FACTS if name in self._facts])

    def __len__(self) -> int:
        return len(self._facts)

    def __getitem__(self, name: str) -> Fact:
        return self._facts[name]

    @property
    def assumed(self) -> list[Fact]:
        """The facts that nothing shows; the guarantee is conditional on them."""
        return [fact for fact in self if fact.how is How.ASSUMED]

    def note(self, name: str, how: How, says: str = "") -> None:
        """Set how `name` is known, unless it was found missing."""
        if name not in self._missing:
            self._facts[name] = Fact(name, how, says=says)

    def watch(self, name: str, found: Callable[[], str]) -> None:
        """Ask `found` whenever the facts are read: a sentence says what is missing just now, none that nothing is."""
        self._live[name] = found

    def checked(self, name: str, *, step: int | None = None, says: str = "") -> None:
        """Count a check that `name` passed at `step`."""
        if name in self._missing:
            return
        before = self._facts.get(name)
        times = before.times + 1 if before is not None and before.how is How.CHECKED else 1
        self._facts[name] = Fact(name, How.CHECKED, times, step, says or (before.says if before is not None else ""))

    def missing(self, name: str, says: str) -> None:
        """Record that `name` is not known to hold from now on; only a new run, or a declaration, gets it back."""
        self._missing.add(name)
        self._facts[name] = Fact(name, How.ASSUMED, says=says)

    def declare(self, name: str, says: str) -> None:
        """Record the user's declaration of `name`; it joins what was declared before."""
        before = self._facts.get(name)
        if before is not None and before.how is How.DECLARED and says not in before.says.split("; "):
            says = f"{before.says}; {says}"
        self._facts[name] = Fact(name, How.DECLARED, says=says)
        self._missing.discard(name)

    def absorb(self, others: Facts) -> None:
        """Take in the facts of another run on the same records: of each the weaker way of knowing stays."""
        order = list(How)
        for fact in others:
            mine = self._facts.get(fact.id)
            if mine is None or order.index(fact.how) > order.index(mine.how):
                self._facts[fact.id] = fact
        self._missing |= others._missing

    def spec(self) -> list[dict[str, Any]]:
        """JSON form."""
        return [fact.spec() for fact in self]

    @classmethod
    def from_spec(cls, spec: object) -> Facts:
        """The facts of a JSON list."""
        facts = cls()
        for row in check.instance("facts", spec, list, "a list of tables with id and how"):
            fact = Fact.from_spec(row)
            facts._facts[fact.id] = fact
            if fact.how is How.ASSUMED:
                facts._missing.add(fact.id)
        return facts
