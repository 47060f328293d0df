"""Runs of this process on the same records with ledgers of their own: neither states what both cost."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Hashable

from tacit.accounting import Ledger
from tacit.budget.shared_ledger import SharedLedger
from tacit.errors import PrivacyWarning

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
