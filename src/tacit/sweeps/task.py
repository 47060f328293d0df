"""A task: an importable function and its plain settings, identified by what its result depends on.

Leases of tasks: a sweep that is at work on a task keeps others from running it too, as long as its process lives.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tacit import check
from tacit.locking import Lock
from tacit.serialization import plain_values
from tacit.signing import new_id, signing_key

_WORDS_ONLY = ("cli", "reports")


@dataclass(frozen=True)
class Task:
    """One run of a sweep.

    Attributes:
        function: "package.module:name" of a function that takes `settings` as keyword arguments and returns plain
            values (numbers, text, lists, dicts).
        settings: plain values; all that the result depends on besides the code and the data.
        seconds: expected cost, for the estimate of the time left.
        reads_data: whether the function also takes `data_dir`, the folder of the data files.
        files: whose content the result depends on besides; relative ones lie in `data_dir`, if one is given.
        label: what a message calls the task; its function and settings by default.
        secret: settings that are passed to the function and kept nowhere, such as the seed of the noise. What shows
            that they were given should stand under their names in `settings`.
        version: of what `function` computes, raised by hand; where it is given, results are kept by it and not by the
            source of the package, which then is information beside them.
    """

    function: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 1.0
    reads_data: bool = False
    files: tuple[str, ...] = ()
    label: str = ""
    secret: Mapping[str, Any] = field(default_factory=dict, repr=False)
    version: str = ""

    def __post_init__(self) -> None:
        if self.function.count(":") != 1:
            raise check.fail("function", "given as package.module:name", self.function)
        check.positive("seconds", self.seconds)
        try:
            json.dumps(plain_values(dict(self.settings)), allow_nan=False)
        except (TypeError, ValueError):
            raise check.fail("settings", "plain values that JSON can hold", self.settings) from None

    def __str__(self) -> str:
        return self.label or f"{self.function} with {dict(self.settings)}"

    def call(self, data_dir: str | os.PathLike[str] | None = None) -> Any:
        """Run the function, in this process."""
        module, name = self.function.split(":")
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return function(
            **dict(self.settings) | dict(self.secret), **({"data_dir": data_dir} if self.reads_data else {})
        )

    def key(self, data_dir: str | os.PathLike[str] | None = None) -> str:
        """SHA-256 of function, settings, version or else the package's code, the data, if read, and the files."""
        data = data_fingerprint(data_dir) if self.reads_data else ""
        files = [file_fingerprint(os.path.join(data_dir or "", each)) for each in self.files]
        parts = [self.function, plain_values(dict(self.settings)), self.version or code_fingerprint(), data, *files]
        if self.secret:
            parts.append(_keyed(plain_values(dict(self.secret))))
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _keyed(secret: dict[str, Any]) -> str:
    """What stands for `secret` in a key: few seeds are possible, so a plain hash of one would tell it."""
    key = signing_key()
    return new_id() if key is None else key.mac("secret settings", json.dumps(secret, sort_keys=True).encode())


@cache
def code_fingerprint() -> str:
    """SHA-256 of the package's source and tables, without the rooms that only present results."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.toml")]):
        if path.relative_to(root).parts[0] not in _WORDS_ONLY:
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def data_fingerprint(folder: str | os.PathLike[str] | None) -> str:
    """SHA-256 of the names and sizes of the files in a data folder; loaders check the content of what they read."""
    if folder is None:
        return ""
    root = Path(folder)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    listed = [(str(path.relative_to(root)), path.stat().st_size) for path in files]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def file_fingerprint(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's content; "" where there is no file, which is for the task to report."""
    file = Path(path)
    if not file.is_file():
        return ""
    found = file.stat()
    return _content(file, found.st_size, found.st_mtime_ns)


@cache
def _content(file: Path, size: int, changed: int) -> str:
    """Kept by size and time, since a large table is asked for by every task of a sweep."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


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
