"""Monotone counters beside the key: a signed file that was overtaken by a later one is recognised."""

from __future__ import annotations

import re
from pathlib import Path

from tacit.locking import writing
from tacit.serialization import write_text
from tacit.signing.keys import configuration_folder

_ID = re.compile(r"[0-9a-f]{32}")


def latest_count(id: str) -> int:
    """The highest count that `raise_count` was told for the file `id`; 0 where none is known.

    Example:
        >>> latest_count("0" * 32)
        0
    """
    return _known(id)[0]


def latest_place(id: str) -> str:
    """The path of the file `id` when its count was raised last; empty where none is known.

    Example:
        >>> latest_place("0" * 32)
        ''
    """
    return _known(id)[1]


def raise_count(id: str, count: int, path: str | Path) -> None:
    """Remember that the file `id` was written with `count`; a lower count than the known one changes nothing.

    It is told after the file is written, so that a kill in between leaves a file that is ahead of its counter and never
    one behind it. Where the folder cannot be written to, rollbacks of the file go unnoticed.

    Args:
        id: of the file, from `new_id`.
        count: that was signed with it, >= 1.
        path: where it was written.

    Example:
        >>> from tacit.signing import new_id
        >>> file = new_id()
        >>> raise_count(file, 2, "run"); raise_count(file, 1, "run")
        >>> latest_count(file)
        2
    """
    place = _place(id)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # Two processes that write one store must not both find the lower count and end with it.
        with writing("counter", place):
            if count > latest_count(id):
                write_text(place, f"{count}\n{Path(path).resolve()}")
    except OSError:
        return


def _known(id: str) -> tuple[int, str]:
    try:
        count, _, path = _place(id).read_text(encoding="utf-8").partition("\n")
        return int(count), path
    except (OSError, ValueError):
        return 0, ""


def _place(id: str) -> Path:
    """The file of a counter; an id that came from elsewhere must not lead out of the folder."""
    if not _ID.fullmatch(id):
        raise ValueError("no id")
    return configuration_folder() / "counters" / id
