"""`Reservation`: what a run may spend, written down before it runs."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tacit.accounting import Ledger
from tacit.budget.records import ABANDONED, Held, head_of, steps_of
from tacit.budget.shared_ledger import SharedLedger
from tacit.errors import InvalidInput
from tacit.mechanisms import Mechanism

if TYPE_CHECKING:
    from tacit.budget.dataset import DatasetBudget

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
        wanted = steps_of(entries)
        missing = wanted - self.held.blocks.get(self.block, Counter())
        if missing:
            held = self.held
            self.dataset.reserve_more(held, missing, self.block, head or {})

    def state(self, ledger: Ledger) -> None:
        """Keep what `ledger` says of facts, assumptions and standing by now, where that is news."""
        head = head_of(ledger)
        if self.held.heads.get(self.block) != head:
            self.dataset.append(self.id, "head", {"block": self.block, "head": head})

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
