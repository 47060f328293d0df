"""The facts that a training guarantee rests on besides its theorem: a closed list, and how each one is known.

A fact is `enforced` by construction or a theorem, `checked` on the run itself (how often, last at which step),
`declared` by name by the user, or `assumed`; `STANDINGS` says what each leaves of the word `proven`. A check is a test
of stated power, not a proof; it guards against mistakes, not against a programmer who evades it.

`Entry`: one mechanism of a ledger, and how often it ran.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tacit import check
from tacit.mechanisms import Mechanism
from tacit.standing import Standing


class How(StrEnum):
    """How a fact is known, strongest first.

    Example:
        >>> [how.value for how in How]
        ['enforced', 'checked', 'declared', 'assumed']
    """

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
    "steps": "no output decided after how many steps the run ended",
    "randomness": "noise and batches come from a secure stream",
    "whole_ledger": "the ledger holds all that these records paid for in this run",
    "preprocessing": "preprocessing, model choice and settings come from public data",
    "released": "only weights and ledger leave the run",
    "one_process": "one process trains the model",
    "arithmetic": "rounding of clipping and noise stays within the stated slack",
    "package": "the code that ran is the package as published",
}
"""Identifier -> what must hold. Ledgers and cards list the facts of a run in this order."""
_BESIDE_TYPES = ("rows", "model_rows", "model_state", "loss_rows", "numbers_read", "weights")
"""Facts that the types of a run's operations decide, beside which a check only refutes."""
STANDINGS: dict[str, dict[How, Standing]] = {
    name: {
        How.ENFORCED: Standing.PROVEN,
        How.CHECKED: Standing.PROVEN if name in _BESIDE_TYPES else Standing.CONDITIONAL,
        How.DECLARED: Standing.PROVEN,
        How.ASSUMED: Standing.CONDITIONAL,
    }
    for name in FACTS
}
"""The closed table that decides the printed word: fact -> way of knowing it -> the best standing that it leaves."""
FLOATING = (
    "noise is drawn and added in floating point; the proof is for real numbers, and attacks on low-order bits exceed "
    "the bound"
)
"""What is missing of `arithmetic` where noise is not drawn and added exactly (Mironov 2012)."""


@dataclass(frozen=True)
class Fact:
    """One fact of a run.

    Attributes:
        id: a key of `FACTS`.
        how: how it is known.
        times: how often it was checked.
        last_step: the step of the last check, counted from 1; None where it is not checked by step.
        says: one sentence: what was checked or declared, or what is missing and how to get it.

    Example:
        >>> Fact("unit", How.DECLARED, says="unit record").spec()["how"]
        'declared'
    """

    id: str
    how: How
    times: int = 0
    last_step: int | None = None
    says: str = ""

    def __post_init__(self) -> None:
        check.choice("id", self.id, FACTS)
        object.__setattr__(self, "how", How(check.choice("how", self.how, How)))

    @property
    def standing(self) -> Standing:
        """The best standing that it leaves."""
        return STANDINGS[self.id][self.how]

    def spec(self) -> dict[str, Any]:
        """JSON form."""
        return vars(self) | {"how": self.how.value}

    @classmethod
    def from_spec(cls, spec: object) -> Fact:
        """The fact of a JSON table; raises `InvalidInput` for any other table."""
        table = check.instance("facts", spec, dict, "a list of tables with id and how")
        check.keys("facts", table, ("id", "how", "times", "last_step", "says"))
        last = table.get("last_step")
        return cls(
            check.text("id", table.get("id")),
            How(check.choice("how", table.get("how"), How)),
            check.count("times", table.get("times", 0), minimum=0),
            None if last is None else check.count("last_step", last, minimum=0),
            check.instance("says", table.get("says", ""), str, "a sentence"),
        )


@dataclass
class _Tally:
    """Checks of one fact since the facts were last read; a step of training counts several."""

    says: str
    times: int = 0
    last_step: int | None = None


class Facts:
    """The facts of a ledger, in the order of `FACTS`; a weaker way of knowing is never forgotten.

    The facts of the run at hand may get better known as it goes on: what is noted as assumed may be checked later.
    Those of earlier runs on the same ledger are closed by `begin`: of each fact the weakest way of knowing in any run
    is what the ledger states.

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
        >>> facts.begin()
        >>> facts.note("numbers_read", How.ENFORCED)
        >>> [fact.id for fact in facts.assumed]
        ['numbers_read']
    """

    def __init__(self) -> None:
        self._stated: dict[str, Fact] = {}
        self._tallies: dict[str, _Tally] = {}
        self._earlier: dict[str, Fact] = {}
        self._missing: set[str] = set()
        self._declared: set[tuple[str, int]] = set()
        self._whole: set[tuple[str, int]] = set()
        self.runs = 0  # How many have begun.
        self._live: list[tuple[str, How, Callable[[], str]]] = []
        self._lock = threading.RLock()

    def __iter__(self) -> Iterator[Fact]:
        with self._lock:
            known = _joined(self._earlier, self._facts)
            for name, how, found in self._live:
                if says := found():
                    known[name] = _one(known.get(name), Fact(name, how, says=says))
        return iter([known[name] for name in FACTS if name in known])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getitem__(self, name: str) -> Fact:
        return {fact.id: fact for fact in self}[name]

    def __contains__(self, name: object) -> bool:
        return any(fact.id == name for fact in self)

    def times(self, name: str) -> int:
        """How often `name` was checked in the run at hand."""
        with self._lock:
            return self._facts[name].times if name in self._facts else 0

    @property
    def assumed(self) -> list[Fact]:
        """The facts that nothing shows well enough; the guarantee is conditional on them."""
        return [fact for fact in self if fact.standing is not Standing.PROVEN]

    @property
    def found_missing(self) -> list[Fact]:
        """The facts that this run found not to be known, and that nobody declared since."""
        return [fact for fact in self.assumed if fact.id in self._missing]

    @property
    def standing(self) -> Standing:
        """The weakest that `STANDINGS` gives for a fact."""
        return Standing.weakest(*(fact.standing for fact in self))

    def begin(self) -> None:
        """Begin another run: what is known of the runs so far stays as it is, whatever is noted from now on."""
        with self._lock:
            self._earlier = _joined(self._earlier, self._facts)
            self._stated, self._tallies, self._missing = {}, {}, set()
            self.runs += 1

    def note(self, name: str, how: How, says: str = "") -> None:
        """Set how `name` is known in this run, unless it was found missing."""
        stated = self._stated.get(name)
        if stated is not None and (stated.how, stated.says, stated.times) == (how, says, 0):
            return  # Reading the facts counts checks together, which costs as much as a small operation.
        with self._lock:
            if name not in self._missing and (name, self.runs) not in self._whole:
                self._facts[name] = Fact(name, how, says=says)

    @property
    def _facts(self) -> dict[str, Fact]:
        """The facts of the run at hand, with the checks counted since they were last read."""
        tallies, self._tallies = self._tallies, {}
        for name, tally in tallies.items():
            if tally.times:
                fact = self._stated[name]
                self._stated[name] = replace(fact, times=fact.times + tally.times, last_step=tally.last_step)
        return self._stated

    def checked(self, name: str, *, step: int | None = None, says: str = "") -> None:
        """Count a check that `name` passed at `step`; what is enforced stays so, uncounted.

        How often a check could be made may follow private values: an empty batch has no sum to compare.
        """
        with self._lock:
            tally = self._tallies.get(name)
            if tally is not None and says in ("", tally.says):
                tally.times, tally.last_step = tally.times + 1, step
                return
            if name in self._missing or (name, self.runs) in self._whole:
                return
            # Other facts go on being counted.
            before = (self._stated if tally is None else self._facts).get(name)
            if before is not None and before.how is How.ENFORCED:
                return
            times = before.times + 1 if before is not None and before.how is How.CHECKED else 1
            sentence = says or (before.says if before is not None else "")
            self._stated[name] = Fact(name, How.CHECKED, times, step, sentence)
            self._tallies[name] = _Tally(sentence)

    def missing(self, name: str, says: str) -> None:
        """Record that `name` is not known to hold from now on; only a new run, or a declaration, gets it back."""
        with self._lock:
            if (name, self.runs) in self._whole:
                return
            before = self._facts.get(name) if name in self._missing else None
            self._missing.add(name)
            self._facts[name] = _one(before, Fact(name, How.ASSUMED, says=says))

    def watch(self, name: str, found: Callable[[], str], how: How = How.ASSUMED) -> None:
        """Ask `found` whenever the facts are read: a sentence says what is missing just now, "" that nothing is.

        With another `how` the sentence joins those of a fact that is known so.
        """
        check.choice("name", name, FACTS)
        self._live.append((name, how, found))

    def declare(self, name: str, says: str, *, whole: bool = False) -> None:
        """Record the user's declaration of `name` for this run; it joins what was declared before.

        Args:
            name: a key of `FACTS`.
            says: why it holds.
            whole: whether nothing found later takes it back in this run.
        """
        with self._lock:
            if whole:
                self._whole.add((name, self.runs))
            before = self._facts.get(name)
            if before is not None and before.how is not How.DECLARED:
                before = None
            self._facts[name] = _one(before, Fact(name, How.DECLARED, says=says))
            self._missing.discard(name)
            self._declared.add((name, self.runs))

    def is_declared(self, name: str, run: int) -> bool:
        """Whether the user declared `name` while `run` was the value of `runs`."""
        return (name, run) in self._declared

    def absorb(self, others: Facts) -> None:
        """Take in the facts of another run on the same records: of each the weaker way of knowing stays."""
        theirs = {fact.id: fact for fact in others}
        with self._lock:
            self._earlier = _joined(self._earlier, theirs)

    def advance(self, later: Facts) -> None:
        """Take in the facts of a later state of the same run; a fact known equally well is the later one."""
        theirs = {fact.id: fact for fact in later}
        with self._lock:
            for name, fact in theirs.items():
                mine = self._facts.get(name)
                self._facts[name] = mine if mine is not None and _rank(mine) > _rank(fact) else fact
            self._missing |= later._missing

    def copy(self) -> Facts:
        """Independent facts that say the same."""
        copied = Facts()
        with self._lock:
            copied._stated, copied._earlier = dict(self._facts), dict(self._earlier)
            copied._missing = set(self._missing)
            for name, how, found in self._live:
                if how is How.ASSUMED and (says := found()):
                    copied.missing(name, says)
        return copied

    def spec(self) -> list[dict[str, Any]]:
        """JSON form."""
        return [fact.spec() for fact in self]

    @classmethod
    def from_spec(cls, spec: object) -> Facts:
        """The facts of a JSON list; raises `InvalidInput` for any other value, or one that lists a fact twice."""
        facts = cls()
        for row in check.instance("facts", spec, list, "a list of tables with id and how"):
            fact = Fact.from_spec(row)
            if fact.id in facts._facts:
                raise check.fail("facts", "a list that holds each fact once", fact.id)
            facts._facts[fact.id] = fact
            if fact.how is How.ASSUMED:
                facts._missing.add(fact.id)
        return facts


def _rank(fact: Fact) -> int:
    return list(How).index(fact.how)


def _joined(first: dict[str, Fact], second: dict[str, Fact]) -> dict[str, Fact]:
    """The facts of two runs together."""
    return first | {name: _one(first.get(name), fact) for name, fact in second.items()}


def _one(first: Fact | None, second: Fact) -> Fact:
    """What two runs say about one fact: the weaker way of knowing; checks are added, sentences joined."""
    if first is None or _rank(second) > _rank(first):
        return second
    if _rank(first) > _rank(second):
        return first
    sentences = "; ".join(dict.fromkeys(part for fact in (first, second) for part in fact.says.split("; ") if part))
    last = first.last_step if second.last_step is None else second.last_step
    return replace(second, times=first.times + second.times, last_step=last, says=sentences)


@dataclass(frozen=True)
class Entry:
    """One mechanism, how often it ran, and why.

    Attributes:
        mechanism: the mechanism.
        steps: number of times that it ran, >= 1.
        note: reason of the entry.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> Entry(Gaussian(1.0), 3).steps
        3
    """

    mechanism: Mechanism
    steps: int
    note: str = ""


PUBLIC = "Taken as public: "
"""How an assumption begins that names an input of a run of which nothing here shows that it follows no record."""
UNSTATED = (
    "Earlier entries of this ledger are those of a file that states no facts: the guarantee is conditional on "
    "everything that the theorem needs of that run."
)
"""The assumption behind a run that goes on in a ledger from before facts were recorded."""


def unpaid(what: str) -> str:
    """The assumption behind every number of a run that read `what` from its data without a privacy cost.

    Example:
        >>> unpaid("class counts")
        'Read from the data without being paid for: class counts'
    """
    return f"Read from the data without being paid for: {what}"
