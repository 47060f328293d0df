"""Naming the places of a fault: bounded lists, so that an error stays one sentence."""

from collections.abc import Iterable

import numpy as np

from tacit import check
from tacit.errors import InvalidInput


def listed(names: Iterable[object], most: int = 5) -> str:
    """At most `most` of `names`, with the count of those left out."""
    every = [str(name) for name in names]
    rest = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + rest


def bad_cells(name: str, rule: str, rows: np.ndarray, columns: Iterable[object]) -> InvalidInput:
    """The error that names the rows and columns, at most five of each, whose cells break `rule`.

    Args:
        name: of the argument that holds the table.
        rule: what every cell must be, as a noun.
        rows: numbers of the rows, counted from 0.
        columns: names or numbers of the columns.
    """
    got = f"other cells in rows {listed(np.unique(rows))}, columns {listed(columns)}"
    return check.fail(name, rule, got, "Remove or fill those cells; rows count from 0.")
