"""`Entry`: one mechanism of a ledger, and how often it ran."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.mechanisms import Mechanism


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


def unpaid(what: str) -> str:
    """The assumption behind every number of a run that read `what` from its data without a privacy cost.

    Example:
        >>> unpaid("class counts")
        'Read from the data without being paid for: class counts'
    """
    return f"Read from the data without being paid for: {what}"
