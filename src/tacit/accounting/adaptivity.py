"""Spending that may follow earlier outputs: reserved slots, and the scope of a total.

The natural filter, which goes on while the exact cost of what ran is below the budget, is no guarantee: after one
choice among three continuations that each complete (3, 1e-5) the true epsilon is 3.190 (`tests/accounting`). What is:
slots, a declared finite menu (`mechanisms.Menu`), and filters (`accounting.filters`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from tacit.accounting.entry import Entry
from tacit.mechanisms import Gaussian, Mechanism, Menu, Poisson

SCOPES = ("fixed",)
"""Scopes that a ledger may be declared to have."""
FIXED = "Every setting of every run in this ledger was fixed before any output was seen."
"""The declaration behind a ledger of scope "fixed" in which a later run spends what an earlier one left."""
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
        self._free: dict[Mechanism, int] = {}
        for part, steps in mechanism.parts():
            self._free[part] = self._free.get(part, 0) + steps

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
