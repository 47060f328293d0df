"""Errors about cells of a table: bounded lists of rows and columns, so that a message stays one sentence."""

from collections.abc import Iterable

import numpy as np

from tacit.errors import InvalidInput


def listed(names: Iterable[object], most: int = 5) -> str:
    """At most `most` of `names`, with the count of those left out."""
    every = [str(name) for name in names]
    rest = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + rest


def bad_cells(
    name: str, rule: str, rows: np.ndarray, columns: Iterable[object], hint: str = "Remove or fill these cells."
) -> InvalidInput:
    """The error that names the rows and columns, at most five of each, whose cells break `rule`.

    Args:
        name: of the argument that holds the table.
        rule: what every cell must be, as a noun.
        rows: numbers of the rows, counted from 0.
        columns: names or numbers of the columns.
        hint: what to do, a sentence.
    """
    got = f"cells in rows {listed(np.unique(rows))}, columns {listed(columns)}, that are not"
    return InvalidInput(f"{name} must be {rule}; got {got}. {hint.rstrip('.')}; rows count from 0.")
