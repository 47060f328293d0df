"""Weights of records and classes in a convex risk: shares of a public bound, so that no record counts more than one.

Fits of clones and copies without a shared ledger, as a search makes them: none of their ledgers holds the others.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tacit import check
from tacit.accounting import Ledger
from tacit.data.files import bad_cells
from tacit.errors import PrivacyWarning
from tacit.standing import Standing

Array = np.ndarray


def record_shares(sample_weight: Any, records: int, weight_bound: float) -> Array:
    """min(w, weight_bound) / weight_bound of each record, in [0, 1].

    Args:
        sample_weight: (records,), finite and >= 0.
        records: n.
        weight_bound: > 0, public.

    Raises:
        InvalidInput: a rule above is broken; rows are named, values are not.
    """
    bound = check.positive("weight_bound", weight_bound)
    with check.reading("sample_weight", "one number for each row of X"):
        weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (records,):
        raise check.fail("sample_weight", f"of shape ({records},), one number for each row of X", weights.shape)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        raise bad_cells("sample_weight", "finite and >= 0", np.flatnonzero(bad), ["sample_weight"])
    return np.minimum(weights, bound) / bound


def class_shares(class_weight: Any, classes: Array) -> Array:
    """The weight of each class as a share of the largest, in (0, 1]; 1 for a class that is not named.

    Raises `InvalidInput` for "balanced", which would count the records of each class without paying for that, for a
    class that is not declared, and for weights that are not positive.
    """
    if not isinstance(class_weight, Mapping):
        hint = "Counting the records of each class would cost privacy; state the weights from public knowledge."
        raise check.fail("class_weight", "a table of class: weight", class_weight, hint)
    given = dict(class_weight)
    known = classes.tolist()
    unknown = [name for name in given if name not in known]
    if unknown:
        raise check.fail("class_weight", f"of the declared classes {known[:10]}", unknown)
    weights = np.array([check.positive(f"class_weight of {name!r}", given.get(name, 1.0)) for name in known])
    return weights / weights.max()


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
        return partial(Relatives, elsewhere=True), ()  # a copy in another process sees none of the others
