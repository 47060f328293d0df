"""`SharedLedger`: a ledger in a registry, which processes, clones, copies and pickles share.

Runs of this process on the same records with ledgers of their own: neither states what both cost.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, Self

from tacit import check
from tacit.accounting import Entry, Ledger
from tacit.accounting.adaptivity import LATER
from tacit.budget.records import Steps, head_of, mechanisms, steps_of, take_head
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.mechanisms import Mechanism
from tacit.standing import Standing

if TYPE_CHECKING:
    from tacit.budget.reservation import Reservation


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
        self._reservation = reservation
        self._local: list[Entry] = []
        self._slots: Steps = Counter()
        self._others: dict[str, list[Entry]] = {}
        super().__init__(relation=reservation.dataset.relation, unit=reservation.dataset.unit)

    @property
    def reservation(self) -> Reservation:
        """Where it is kept."""
        return self._reservation

    @property
    def _entries(self) -> list[Entry]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of other processes, as they reserved them, and then this one's."""
        self._read_others()
        return [*(entry for block in self._others.values() for entry in block), *self._local]

    @_entries.setter
    def _entries(self, entries: list[Entry]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if entries:
            raise InvalidInput("ledger must be one of its own process to be set; got one of a registry.")

    @property
    def standing(self) -> Standing:
        """As of every ledger, with what other processes said."""
        self._read_others()
        return super().standing

    def chosen_after_outputs(self, why: str) -> None:
        """Claimed, as of every ledger; conditional where a filter of the data set admits what was chosen."""
        if self._reservation.dataset.scope.is_filter:
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
            last = self._local[-1] if self._local else None
            if last is not None and (last.mechanism, last.note) == (mechanism, note):
                self._local[-1] = Entry(mechanism, last.steps + steps, note)
            else:
                self._local.append(Entry(mechanism, steps, note))
            for switch in mechanism.unsafe:
                super().mark_unsafe(switch)

    def settle(self) -> None:
        """Keep in the registry what this ledger says of facts and standing at the end of a run."""
        self._reservation.settle(self._mine())

    def advance(self, later: Ledger) -> None:
        """Become `later`, as a run that is resumed; what it holds beyond this one is reserved."""
        begins = self.copy()
        begins.advance(later)
        with self._lock:
            ahead = (*later.entries, *later.not_taken)
            self._reserve([(entry.mechanism, entry.steps) for entry in ahead], later)
            self._local = list(later.entries)
            self._go_on(later)
            self.facts.advance(later.facts)
            self._take_marks(later)

    def _reserve(self, wanted: list[tuple[Mechanism, int]], ahead: Ledger) -> None:
        """Reserve what is missing for this process to run `wanted` in all, when its ledger will stand as `ahead`."""
        self._reservation.extend(wanted, head_of(ahead))
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
            held = self._reservation.held
            for block, steps in held.blocks.items():
                if block != self._reservation.block:
                    self._others[block] = [Entry(each, times, held.label) for each, times in mechanisms(steps)]
            for block, head in held.heads.items():
                if block != self._reservation.block:
                    take_head(self, head)

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return type(self), (self._reservation,)


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
