"""Scores of an attack on somebody else's model, from a CSV file with a column of members and one of scores."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from tacit import check
from tacit.attacks.base import Scores

MEMBERS = {"1": True, "true": True, "yes": True, "in": True, "member": True, "1.0": True} | {
    "0": False,
    "false": False,
    "no": False,
    "out": False,
    "non-member": False,
    "non_member": False,
    "0.0": False,
}
"""What a cell of the member column may say, in lower case."""
LARGEST = 1 << 30
"""Bytes of a file that is read: a column of scores of thirty million records."""
_SEPARATORS = (",", ";", "\t")


def read_scores(path: str | Path, *, member: str = "member", score: str = "score") -> Scores:
    """The scores in a CSV file with a header; separators , ; and tabs are told apart by it.

    The file holds per-record secrets: messages count rows that break a rule and quote none. The threshold is the mean
    score of the members, which no estimator but `fixed` uses.

    Args:
        path: of the file, UTF-8.
        member: name of the column that says whether a record was trained on: 1 or 0, true or false, in or out.
        score: name of the column of scores, higher meaning "was trained on".

    Raises:
        InvalidInput: the file, its header or a cell breaks its rule.
    """
    path = Path(path)
    if not path.is_file():
        raise check.fail("scores", "a CSV file that exists", str(path))
    if path.stat().st_size > LARGEST:
        raise check.fail("scores", f"a file of at most {LARGEST >> 20} MiB", f"{path.stat().st_size >> 20} MiB")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            separator = max(_SEPARATORS, key=head.count)
            names = [name.strip() for name in next(csv.reader([head], delimiter=separator), [])]
            places = [_place(names, column) for column in (member, score)]
            rows = [row for row in csv.reader(file, delimiter=separator) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise check.fail("scores", "a CSV file in UTF-8", type(error).__name__) from None
    short = sum(len(row) != len(names) for row in rows)
    if short:
        raise check.fail("scores", f"rows of {len(names)} cells, as in the header", f"{short} rows of another length")
    inside = [MEMBERS.get(row[places[0]].strip().lower()) for row in rows]
    unknown = sum(each is None for each in inside)
    if unknown:
        raise check.fail(f"column {member!r}", "1 or 0, true or false, in or out in every row", f"{unknown} others")
    values = np.array([_number(row[places[1]]) for row in rows])
    missing = int(np.isnan(values).sum())
    if missing:
        hint = "Write numbers with a decimal point; leave out records without a score."
        raise check.fail(f"column {score!r}", "a number in every row", f"{missing} others", hint)
    kept = np.array(inside, dtype=bool)
    members, others = values[kept], values[~kept]
    if not len(members) or not len(others):
        got = "members only" if len(members) else "non-members only" if len(others) else "no rows"
        raise check.fail("scores", "of members and of non-members", got)
    finite = members[np.isfinite(members)]
    return Scores(path.stem, members, others, float(finite.mean()) if len(finite) else 0.0)


def _place(names: list[str], column: str) -> int:
    if names.count(column) > 1:
        raise check.fail(f"column {column!r}", "in the header once", f"{names.count(column)} times")
    check.choice("column", column, names)
    return names.index(column)


def _number(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        return math.nan
    return math.nan if "_" in cell else value
