"""Monotone counters beside the key: a signed file that was overtaken by a later one is recognised."""

from __future__ import annotations

import re
from pathlib import Path

from tacit.serialization import write_text
from tacit.signing.keys import configuration_folder

_ID = re.compile(r"[0-9a-f]{32}")


def latest_count(id: str) -> int:
    """The highest count that `raise_count` was told for the file `id`; 0 where none is known.

    Example:
        >>> latest_count("0" * 32)
        0
    """
    try:
        return int(_place(id).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def raise_count(id: str, count: int) -> None:
    """Remember that the file `id` was written with `count`; a lower count than the known one changes nothing.

    It is told after the file is written, so that a kill in between leaves a file that is ahead of its counter and never
    one behind it. Where the folder cannot be written to, rollbacks of the file go unnoticed.

    Args:
        id: of the file, from `new_id`.
        count: that was signed with it, >= 1.

    Example:
        >>> import tempfile, os
        >>> from tacit.signing import new_id
        >>> file = new_id()
        >>> raise_count(file, 2); raise_count(file, 1)
        >>> latest_count(file)
        2
    """
    if count > latest_count(id):
        try:
            write_text(_place(id), str(count))
        except OSError:
            return


def _place(id: str) -> Path:
    """The file of a counter; an id that came from elsewhere must not lead out of the folder."""
    if not _ID.fullmatch(id):
        raise ValueError("no id")
    return configuration_folder() / "counters" / id
