"""Fits of clones and copies without a shared ledger, as a search makes them: none of their ledgers holds the others."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from tacit.accounting import Ledger
from tacit.errors import PrivacyWarning
from tacit.standing import Standing

APART = (
    "Clones or copies of this estimator were fitted apart from this ledger, as a search or cross-validation does; it "
    "states the cost of one fit, and that of all of them is more"
)
"""The assumption of a fit whose relatives paid into other ledgers."""
_HINT = "Give the estimator ledger=..., one of a registry where processes share it (docs/budget.md)."


class Relatives:
    """An estimator without `ledger=`, its clones and its copies.

    The first fit of any of them in this process stands alone. One after another fit, or after a copy of an unfitted one
    was sent to another process, where what it pays is not seen here, does not.
    """

    def __init__(self, *, elsewhere: bool = False):
        self._lock = threading.Lock()
        self._fitted: set[int] = set()
        self.elsewhere = elsewhere

    def fitted(self, estimator: object, ledger: Ledger) -> bool:
        """Whether `ledger` stands for fewer fits than were made; it is marked then.

        An estimator that is fitted again counts once: its second fit replaces the first.
        """
        with self._lock:
            others = self._fitted - {id(estimator)}
            self._fitted.add(id(estimator))
        if not others and not self.elsewhere:
            return False
        ledger.assume(APART)
        ledger.mark_unsafe("clones without a shared ledger", Standing.CLAIMED)
        warnings.warn(f"{APART}. {_HINT}", PrivacyWarning, stacklevel=2)
        return True

    def __deepcopy__(self, memo: object) -> Relatives:
        return self

    def __reduce__(self) -> Any:
        return _elsewhere, ()


def _elsewhere() -> Relatives:
    """The relatives of a copy in another process, which sees none of the others."""
    return Relatives(elsewhere=True)
