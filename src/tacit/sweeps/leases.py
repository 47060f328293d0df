"""Leases of tasks: a sweep that is at work on a task keeps others from running it too, as long as its process lives."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from tacit.locking import Lock
from tacit.signing import new_id

TABLE = "create table if not exists leases (key text primary key, owner text, ran integer)"
"""The table of tasks that were started and have no result: who runs them, and how often they were started."""


class Owner:
    """A sweep that holds leases on tasks of the store at `path`.

    It is alive as long as it holds a lock beside the store, which the operating system gives back when its process
    ends, however it ends. So no clock decides, and a process that was only suspended keeps its tasks.
    """

    def __init__(self, path: Path):
        self._path, self.id = path, new_id()
        self._lock = Lock(_place(path, self.id))
        self._lock.take()

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *_: Any) -> None:
        self._lock.give_back()

    def outlives(self, other: str) -> bool:
        """Whether the owner with the id `other` is gone; what it left is removed."""
        if other == self.id:
            return False
        lock = Lock(_place(self._path, other))
        gone = lock.take()
        lock.give_back()
        return gone


def started(connection: sqlite3.Connection, key: str) -> int:
    """How often the task was started since its last result."""
    found = connection.execute("select ran from leases where key = ?", (key,)).fetchone()
    return found[0] if found else 0


def take(connection: sqlite3.Connection, key: str, owner: Owner) -> bool:
    """Lease the task to `owner` and count its start, unless another one that is alive holds it."""
    found = connection.execute("select owner from leases where key = ?", (key,)).fetchone()
    if found and not owner.outlives(found[0]):
        return False
    ran = started(connection, key) + 1
    connection.execute("insert or replace into leases values (?, ?, ?)", (key, owner.id, ran))
    return True


def end(connection: sqlite3.Connection, key: str) -> None:
    """End the lease of a task whose result is stored with the number of its starts."""
    connection.execute("delete from leases where key = ?", (key,))


def _place(path: Path, owner: str) -> Path:
    # The id comes from the store, which may be edited: it names a file beside the store and none elsewhere.
    return path.with_name(f"{path.name}.{Path(owner).name[:64]}")
