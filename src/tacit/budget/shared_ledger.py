"""`Reservation`: what a run may spend, written down before it runs.

`SharedLedger`: a ledger in a registry, which processes, clones, copies and pickles share.

Runs of this process on the same records with ledgers of their own: neither states what both cost.
"""

from __future__ import annotations

import secrets
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, Self

from tacit import check
from tacit.accounting import Entry, Ledger
from tacit.accounting.adaptivity import LATER
from tacit.budget.records import ABANDONED, Held, Steps, head_of, mechanisms, steps_of, take_head
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.mechanisms import Mechanism
from tacit.standing import Standing

if TYPE_CHECKING:
    from tacit.budget.registry import DatasetBudget

Planned = Ledger | Mechanism | Iterable[tuple[Mechanism, int]]


class Reservation:
    """What one run of a data set may spend; it counts from the moment it is made, whatever becomes of the run.

    Its mechanisms are slots: the run may use any of them, in any order. Slots that are not used are not paid back,
    because the rule that ended the run belongs to the mechanism. Use it as a context: a run that charged nothing by
    the end, because of bad input say, is `abandon`ed; `settle` ends one that did.

    Args:
        dataset: whose records are read.
        id: random identity.
        block: identity of this process's part of it.

    Example:
        >>> import tempfile
        >>> from tacit.budget import Registry
        >>> from tacit.mechanisms import Gaussian
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dataset = Registry.create(f"{folder}/budget.sqlite").declare("patients")
        ...     reservation = dataset.reserve(Gaussian(2.0) * 4, label="histogram")
        ...     ran = Ledger.of(Gaussian(2.0) * 3)
        ...     reservation.settle(ran)
        ...     round(dataset.spent().epsilon(1e-5), 3)
        4.377
    """

    def __init__(self, dataset: DatasetBudget, id: str, block: str = ""):
        self.dataset = dataset
        self.id = id
        self.block = block or secrets.token_hex(8)

    def __reduce__(self) -> Any:
        return Reservation, (self.dataset, self.id)  # Another process has a block of its own.

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None and self.dataset.held(self.id).status != ABANDONED and not self._charged:
            self.abandon()

    _charged = False

    @property
    def held(self) -> Held:
        """What the registry holds of it by now."""
        return self.dataset.held(self.id)

    def cover(self, ledger: Ledger) -> None:
        """Reserve what `ledger` holds beyond what this process has reserved so far; nothing where that is enough.

        Call it with the ledger as it will stand, before the release.

        Raises:
            BudgetExceeded: a cap of the data set would be crossed; nothing was reserved.
            InvalidInput: relation or unit of the ledger are not those of the data set.
        """
        self.dataset.check_ledger(ledger)
        self._charged = True
        self.extend(ledger.mechanism.parts(), head_of(ledger))

    def extend(self, entries: Iterable[tuple[Mechanism, int]], head: dict[str, object] | None = None) -> None:
        """Reserve what is missing for this process to run `entries` in all; see `cover`."""
        held = self.held
        if missing := steps_of(entries) - held.blocks.get(self.block, Counter()):
            self.dataset.reserve_more(held, missing, self.block, head or {})

    def settle(self, ledger: Ledger) -> None:
        """End the run: keep what its ledger says of facts and standing. What was reserved stays spent.

        A ledger that holds more than was reserved is covered first.

        Raises:
            BudgetExceeded: as by `cover`.
            InvalidInput: relation or unit differ, or the reservation was abandoned.
        """
        if self.held.status == ABANDONED:
            raise InvalidInput("reservation must be open; got one that was abandoned. Reserve anew before the run.")
        self.cover(ledger)
        self.dataset.append(self.id, "settle", {"block": self.block, "head": head_of(ledger), "ledger": ledger.hash})

    def abandon(self, ledger: Ledger | None = None) -> None:
        """Give back a reservation of which nothing ran.

        Args:
            ledger: of the run, which is written before any noise is drawn; without one nothing may have been covered.

        Raises:
            InvalidInput: the run has charged a ledger, so that noise may have been drawn.
        """
        charged = self._charged or self.held.heads if ledger is None else ledger.entries
        if charged:
            raise InvalidInput("reservation must be unused to be abandoned; got one that a run has charged. Settle it.")
        self.dataset.append(self.id, "abandon", {})

    def ledger(self) -> SharedLedger:
        """A ledger whose entries are reserved here before they are recorded; copies in other processes share it."""
        return SharedLedger(self)


class SharedLedger(Ledger):
    """A ledger whose every entry is reserved in a registry before it is recorded.

    Copies in other processes (joblib, Ray, a pickle) are the same ledger: what any of them records, all of them show,
    and the caps of the data set hold for all of them together. What another process has reserved counts as spent.

    Args:
        reservation: in the registry; it grows with the ledger.

    Example:
        >>> import pickle, tempfile
        >>> from tacit.budget import Registry
        >>> from tacit.mechanisms import Gaussian
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Registry.create(f"{folder}/budget.sqlite").declare("patients").ledger("counts")
        ...     pickle.loads(pickle.dumps(ledger)).add(Gaussian(2.0))
        ...     ledger.add(Gaussian(3.0))
        ...     ledger.steps
        2
    """

    shared = True

    def __init__(self, reservation: Reservation):
        self.reservation = reservation
        self._local: list[Entry] = []
        self._slots: Steps = Counter()
        self._others: dict[str, list[Entry]] = {}
        known = reservation.dataset.known
        super().__init__(relation=known.relation, unit=known.unit)

    @property
    def _entries(self) -> list[Entry]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of other processes, as they reserved them, and then this one's."""
        self._read_others()
        return [*(entry for block in self._others.values() for entry in block), *self._local]

    @_entries.setter
    def _entries(self, entries: list[Entry]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        check.that(not entries, "ledger", "one of its own process to be set", check.Told("one of a registry"))

    @property
    def standing(self) -> Standing:
        """As of every ledger, with what other processes said."""
        self._read_others()
        return super().standing

    def chosen_after_outputs(self, why: str) -> None:
        """Claimed, as of every ledger; conditional where a filter of the data set admits what was chosen."""
        if self.reservation.dataset.known.scope.is_filter:
            self.may_follow_outputs(LATER)
        else:
            super().chosen_after_outputs(why)

    def prepare(self, planned: Iterable[tuple[Mechanism, int]]) -> None:
        """Reserve a whole run before it begins, beside what is recorded already.

        Raises:
            BudgetExceeded: a cap of the data set would be crossed.
        """
        self._check_open()
        with self._lock:
            self._reserve([*self._own(), *planned], self._mine())

    def add(self, mechanism: Mechanism, steps: int = 1, note: str = "") -> None:
        """Reserve that `mechanism` runs `steps` >= 1 times, then record it.

        Raises:
            BudgetExceeded: a cap of the data set would be crossed; nothing was recorded.
        """
        check.instance("mechanism", mechanism, Mechanism, "one such as Gaussian(1.0)")
        steps = check.count("steps", steps)
        self._check_open()
        with self._lock:
            wanted = [*self._own(), (mechanism, steps)]
            if steps_of(wanted) - self._slots:
                ahead = self._mine()
                ahead.add(mechanism, steps, note)
                self._reserve(wanted, ahead)
            self._grow(self._local, Entry(mechanism, steps, note))

    def settle(self) -> None:
        """Keep in the registry what this ledger says of facts and standing at the end of a run."""
        self.reservation.settle(self._mine())

    def advance(self, later: Ledger) -> None:
        """Become `later`, as a run that is resumed; what it holds beyond this one is reserved."""
        self.copy().advance(later)  # Which refuses what is no later state of this ledger.
        with self._lock:
            ahead = (*later.entries, *later.not_taken)
            self._reserve([(entry.mechanism, entry.steps) for entry in ahead], later)
            self._local = list(later.entries)
            self._go_on(later)
            self.facts.advance(later.facts)
            self._take_marks(later)

    def _reserve(self, wanted: list[tuple[Mechanism, int]], ahead: Ledger) -> None:
        """Reserve what is missing for this process to run `wanted` in all, when its ledger will stand as `ahead`."""
        self.reservation.extend(wanted, head_of(ahead))
        self._slots |= steps_of(wanted)

    def _own(self) -> list[tuple[Mechanism, int]]:
        return [(entry.mechanism, entry.steps) for entry in self._local]

    def _mine(self) -> Ledger:
        """What this process recorded, as a ledger of its own."""
        mine = Ledger(relation=self.relation, unit=self.unit)
        for mechanism, steps in self._own():
            mine.add(mechanism, steps)
        mine.facts = self.facts.copy()
        mine._take_marks(self)
        return mine

    def _read_others(self) -> None:
        """Take in what other processes have reserved and said since."""
        with self._lock:
            held = self.reservation.held
            for block, steps in held.blocks.items():
                if block != self.reservation.block:
                    self._others[block] = [Entry(each, times, held.label) for each, times in mechanisms(steps)]
            for block, head in held.heads.items():
                if block != self.reservation.block:
                    take_head(self, head)

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return type(self), (self.reservation,)


TOGETHER = (
    "Other runs of this process read these records with ledgers of their own; this number is of one run, and that of "
    "all of them, or of the best of them, is more"
)
"""The assumption of a run after another one on the same records."""
_lock = threading.Lock()
_runs: dict[Hashable, list[tuple[weakref.ref[Ledger], frozenset[int] | None]]] = {}


def tell_of_other_runs(records: Hashable, ledger: Ledger, part: frozenset[int] | None = None) -> None:
    """Say so, by a warning and in `ledger`, where another ledger of this process was begun for the same `records`.

    Args:
        records: what stands for them, such as a keyed hash or the identity of an object that stays alive.
        ledger: of the run that begins. One of a registry is counted there.
        part: positions of the records that the run reads; None for all of them. Disjoint parts do not meet.

    Example:
        >>> import warnings
        >>> first, second = Ledger(), Ledger()
        >>> with warnings.catch_warnings(record=True) as found:
        ...     warnings.simplefilter("always")
        ...     for each in (first, first, second):
        ...         tell_of_other_runs("an example of records", each)
        >>> len(found), len(first.assumptions), len(second.assumptions)
        (1, 0, 1)
    """
    if isinstance(ledger, SharedLedger):
        return
    with _lock:
        known = _runs.setdefault(records, [])
        others = [each for each, theirs in known if each() is not ledger and _meet(part, theirs)]
        known.append((weakref.ref(ledger), part))
    if others:
        ledger.assume(TOGETHER)
        warnings.warn(f"{TOGETHER}. Give them one ledger=, or that of a registry.", PrivacyWarning, stacklevel=3)


def _meet(first: frozenset[int] | None, second: frozenset[int] | None) -> bool:
    return first is None or second is None or not first.isdisjoint(second)
