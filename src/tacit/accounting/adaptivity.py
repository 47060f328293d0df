"""Spending that may follow earlier outputs: reserved slots, and the scope of a total.

The natural filter, which goes on while the exact cost of what ran is below the budget, is no guarantee: after one
choice among three continuations that each complete (3, 1e-5) the true epsilon is 3.190 (`tests/accounting`). What is:
slots, a declared finite menu (`mechanisms.Menu`), and filters (`accounting.filters`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from tacit.accounting.facts import Entry, Facts
from tacit.mechanisms import Gaussian, Mechanism, Menu, Poisson
from tacit.relation import Relation
from tacit.standing import Standing

SCOPES = ("fixed",)
"""Scopes that a ledger may be declared to have."""
FIXED = "Every setting of every run in this ledger was fixed before any output was seen."
"""The declaration behind a ledger of scope "fixed" in which a later run spends what an earlier one left."""
LATER = (
    "a later run of this ledger had its noise, rate and steps chosen without looking at the outputs of earlier ones: "
    'declare it by Ledger(scope="fixed"), or reserve Slots, a Menu or a Filter'
)
"""What is missing of `settings` in a ledger of several runs: no theorem composes exactly what follows outputs."""
CHANGED_NOISE = (
    "noise_multiplier was changed during the run, which the accountants take for fixed beforehand: plan it with a "
    'noise schedule, or declare it: ledger.facts.declare("settings", "noise schedule fixed beforehand")'
)
RESUMED = "the noise and rate of the resumed run are not those that it began with, and did not follow its outputs"
FOLLOWING = (LATER, CHANGED_NOISE, RESUMED)
"""What is missing of `settings` where only slots or a filter cover choices after outputs."""
NOT_TAKEN = "planned, not taken: the run could end by what it had released"
"""Note of planned steps that count although they did not run, because the rule that ends a run belongs to it."""
EARLY = "where a loop ended before its plan"
"""An input of a run, for `Ledger.take_as_public`."""
PAST_PLAN = (
    "the run has taken more steps than it planned, as if what it released had decided that: plan them all by steps or "
    'epochs, reserve Slots or a Filter, or declare it: ledger.facts.declare("steps", "a limit fixed beforehand")'
)
OUTSIDE = "a step outside of the reserved slots was recorded at a cost of its own"
_RESERVED = "reserved slots"


class Cover(ABC):
    """A cost that is recorded as a whole beforehand, and what may then run under it.

    Attributes:
        mechanism: the whole cost.
        note: of its entries.
    """

    mechanism: Mechanism
    note: str

    @abstractmethod
    def take(self, mechanism: Mechanism, steps: int) -> bool:
        """Use up room for `steps` runs of `mechanism`; False, with nothing used up, where there is none."""

    @abstractmethod
    def copy(self) -> Cover:
        """An independent one with as much room, for planning."""

    def check(self, relation: Relation) -> None:
        """Raise `InvalidInput` where it tells no cost under `relation`."""
        return


class Slots(Cover):
    """A reserved list of steps; any later step may use a free one that dominates it, whatever was seen before.

    A slot of a Poisson-subsampled Gaussian covers a smaller rate and more noise: the pair at the smaller rate is a
    mixture of that at the larger one with two equal laws, and more noise is post-processing. Everything covers itself.
    The order in which slots are used may follow outputs too, because each order gives the same product of pairs.

    Args:
        mechanism: what is reserved, perhaps a composition.

    Example:
        >>> from tacit.accounting import Ledger
        >>> ledger, slots = Ledger(), Slots(Gaussian(1.0).poisson(0.1) * 2)
        >>> ledger.reserve(slots)
        >>> ledger.add(Gaussian(1.5).poisson(0.05))
        >>> ledger.steps, slots.free
        (2, 1)
    """

    def __init__(self, mechanism: Mechanism):
        self.mechanism, self.note = mechanism, _RESERVED
        self._free: Counter[Mechanism] = Counter()
        for part, steps in mechanism.parts():
            self._free[part] += steps

    def copy(self) -> Slots:
        """Slots of which as many are free."""
        copied = Slots(self.mechanism)
        copied._free = self._free.copy()
        return copied

    @property
    def free(self) -> int:
        """How many slots are left."""
        return sum(self._free.values())

    def take(self, mechanism: Mechanism, steps: int) -> bool:
        """Use the free slots that dominate `mechanism`, the same ones first."""
        fitting = sorted((slot for slot in self._free if covers(slot, mechanism)), key=lambda slot: slot != mechanism)
        if sum(self._free[slot] for slot in fitting) < steps:
            return False
        for slot in fitting:
            used = min(self._free[slot], steps)
            self._free[slot] -= used
            steps -= used
        return True


class OpenRun(Protocol):
    """A run that something outside of it may end at any time."""

    def not_taken(self) -> list[tuple[Mechanism, int]]:
        """Planned steps that count although they have not run, and are not in the ledger."""
        ...

    def pay_ahead(self) -> None:
        """Take into account that they are in the ledger now."""

    @property
    def public_end(self) -> str:
        """An input of the run that its end makes, for card and statement; empty where there is none."""
        ...

    def warn_of_rest(self) -> None:
        """Warn once where steps count that have not run, and no loop over batches is going on."""


class Choices(ABC):
    """What a ledger knows of choices after outputs: covers that pay for them, plans, and what neither covers."""

    _assumed: list[str]
    facts: Facts
    _lock: AbstractContextManager[Any]

    def __init__(self) -> None:
        self._covers: list[Cover] = []
        self._covered: Mechanism | None = None  # The mechanism recorded last, where a cover paid for it.
        self.covered_steps = 0
        self._open: list[OpenRun] = []
        self._owed: Counter[Mechanism] = Counter()  # Not taken by runs of another ledger that go on in this one.
        self._planned_after: bool | None = None  # In a context of planned runs: whether entries were there before it.

    @property
    @abstractmethod
    def relation(self) -> Relation:
        """The neighbouring relation that everything here holds for."""

    @property
    @abstractmethod
    def entries(self) -> tuple[Entry, ...]:
        """Every entry, oldest first."""

    @abstractmethod
    def add(self, mechanism: Mechanism, steps: int = 1, note: str = "") -> None:
        """Record that `mechanism` ran `steps` >= 1 times."""

    @abstractmethod
    def mark_unsafe(self, switch: str, standing: Standing = Standing.PROVEN) -> None:
        """Record a switch, and the best standing that remains possible."""

    def reserve(self, cover: Cover) -> None:
        """Record the whole cost of `cover` now; what it covers is recorded at no further cost (`Slots`, `Filter`)."""
        cover.check(self.relation)
        with self._lock:
            covers, self._covers = self._covers, []
            for part, steps in cover.mechanism.parts():
                self.add(part, steps, cover.note)
            self._covers = [*covers, cover]

    @property
    def counted(self) -> int:
        """Number of steps that ran, at a cost of their own or under one that was recorded before."""
        return sum(entry.steps for entry in self.entries) + self.covered_steps

    def follow(self, run: OpenRun) -> None:
        """Count the whole plan of `run` from its first step on."""
        self._open.append(run)

    @property
    def not_taken(self) -> tuple[Entry, ...]:
        """Planned steps that count although they have not run: the loops that plan them may end at any time."""
        with self._lock:
            parts = [*(+self._owed).items(), *(part for run in self._open for part in run.not_taken())]
        return tuple(Entry(*part, NOT_TAKEN) for part in parts)

    def _warn_of_rest(self) -> None:
        """Have runs whose loop left a part of the plan say so to whoever reads or saves the ledger."""
        for run in self._open:
            run.warn_of_rest()

    def _go_on(self, later: Choices) -> None:
        """Owe what `later`, whose entries this ledger takes over, has not taken; runs that it broke off go on in it."""
        self._owed = Counter({entry.mechanism: entry.steps for entry in later.not_taken})
        self._open = [run for run in self._open if not run.not_taken()]

    def owe(self, mechanism: Mechanism, steps: int) -> None:
        """Count `steps` planned steps of a run that goes on here, until it has taken them; -1 once it takes one."""
        self._owed[mechanism] += steps

    def owed(self, mechanism: Mechanism) -> int:
        """How many steps of `mechanism` are owed."""
        return self._owed[mechanism]

    def _charge_not_taken(self) -> None:
        """Make entries of `not_taken`."""
        with self._lock:
            for entry in self.not_taken:
                self.add(entry.mechanism, entry.steps, NOT_TAKEN)
            for run in self._open:
                run.pay_ahead()
            self._owed.clear()

    def take_paid(self, mechanism: Mechanism) -> None:
        """Record a step of `mechanism` whose cost is an entry already."""
        with self._lock:
            self._covered, self.covered_steps = mechanism, self.covered_steps + 1

    @property
    def is_covered(self) -> bool:
        """Whether choices after outputs are paid for: by reserved slots, a filter, or a scope declared fixed."""
        return bool(self._covers) or FIXED in self._assumed

    def chosen_after_outputs(self, why: str) -> None:
        """Record that the cost of a run followed earlier outputs: claimed, unless the scope was declared fixed."""
        if FIXED not in self._assumed:
            self.mark_unsafe(f"adaptive: {why}", Standing.CLAIMED)

    def may_follow_outputs(self, why: str) -> None:
        """Record that the cost of a run may have followed earlier outputs: conditional, unless that is covered."""
        if not self.is_covered:
            self.facts.missing("settings", why)

    def _is_paid_for(self, mechanism: Mechanism, steps: int) -> bool:
        """Whether a cover pays for these steps, which are then at no further cost."""
        paid = any(cover.take(mechanism, steps) for cover in self._covers)
        self._covered, self.covered_steps = (mechanism if paid else None), self.covered_steps + paid * steps
        return paid

    @property
    def latest(self) -> Mechanism:
        """The mechanism recorded last, by an entry or at the expense of a cover; the ledger must not be empty."""
        return self.entries[-1].mechanism if self._covered is None else self._covered

    @contextmanager
    def planned(self, *, after: bool | None = None) -> Iterator[None]:
        """Context of runs whose noise, rates and steps were all fixed before the first of them began.

        `after` says whether other runs were recorded before that; by default, whether any entry is there now.
        """
        before = self._planned_after
        if before is None:
            self._planned_after = bool(self.entries) if after is None else after
        try:
            yield
        finally:
            self._planned_after = before

    @property
    def _follows_another(self) -> bool:
        """Whether a run that begins now comes after another one that was not planned with it."""
        return bool(self.entries) if self._planned_after is None else self._planned_after


def covers(slot: Mechanism, step: Mechanism) -> bool:
    """Whether the pairs of `slot` dominate those of `step`, by a rule that needs no computation.

    Example:
        >>> covers(Gaussian(1.0), Gaussian(1.0).poisson(0.1)), covers(Gaussian(1.0).poisson(0.1), Gaussian(1.0))
        (True, False)
    """
    if slot == step:
        return True
    known, asked = _gaussian(slot), _gaussian(step)
    return known is not None and asked is not None and known[0] >= asked[0] and known[1] <= asked[1]


def scope_of(entries: Iterable[Entry]) -> str:
    """The scope of a total: which kinds of choices after earlier outputs its entries allow.

    Example:
        >>> scope_of([Entry(Gaussian(1.0), 1)])
        'fixed'
    """
    found = {_scope(entry.mechanism, entry.note) for entry in entries} - {"fixed"}
    return ", ".join(sorted(found)) or "fixed"


def _scope(mechanism: Mechanism, note: str) -> str:
    if note.startswith("filter("):
        return note
    return "menu" if isinstance(mechanism, Menu) else "fixed"


def _gaussian(step: Mechanism) -> tuple[float, float] | None:
    """(rate, noise multiplier) of a Gaussian step on a Poisson sample or on all records."""
    rate, base = (step.sample_rate, step.base) if isinstance(step, Poisson) else (1.0, step)
    if not isinstance(base, Gaussian) or base.noise_multiplier <= 0 or base != Gaussian(base.noise_multiplier):
        return None
    return rate, base.noise_multiplier
