"""Stored results of sweeps: one SQLite file, and its results as flat rows for tables and files.

Each result is written the moment it is finished, so that a killed sweep continues where it was.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.serialization import plain_values
from tacit.sweeps.task import Task, code_fingerprint

NOT_KEPT = "not kept"
"""What a store holds in place of the seed of the noise."""
LEDGER = "ledger"
"""The key of a run's value that holds its ledger; tables leave it out."""
_TABLE = """
create table if not exists results (
    key text primary key, sweep text, function text, settings text, value text, seconds real, finished real,
    versions text)
"""
_STORED = ("key", "sweep", "function", "settings", "value", "seconds", "finished", "versions")
_COLUMNS = ", ".join(_STORED[1:])
_PACKAGES = ("tacit", "torch", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Result:
    """Result of one task, with its duration and the versions that ran."""

    sweep: str
    function: str
    settings: dict[str, Any]
    value: Any
    seconds: float
    finished: float
    versions: dict[str, str]


class Store:
    """Finished tasks by key.

    Args:
        path: SQLite file, made if needed.
        read_only: the file must be a store already, and nothing is written.

    Raises:
        InvalidInput: the file is not such a store, or damaged; so does every method.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False):
        self.path = Path(path)
        self._read_only = read_only
        if not read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection:
            columns = tuple(row[1] for row in connection.execute("pragma table_info(results)"))
            empty = connection.execute("select 1 from sqlite_master").fetchone() is None
            if columns != _STORED and (read_only or not empty):
                raise self._refusal("Its tables are not those of a store")
            if not read_only:
                connection.execute("pragma journal_mode = wal")
                connection.execute(_TABLE)

    def add(self, key: str, sweep: str, task: Task, value: Any, seconds: float) -> Result:
        """Record a finished task; it is on disk when this returns.

        Args:
            key: of the task, its code and its data.
            sweep: name of the sweep.
            task: that was run.
            value: its result, JSON.
            seconds: that it took.
        """
        result = Result(
            sweep, task.function, dict(task.settings), plain_values(value), seconds, time.time(), versions()
        )
        row = (
            key,
            sweep,
            task.function,
            json.dumps(plain_values(result.settings), sort_keys=True),
            json.dumps(result.value),
            seconds,
            result.finished,
            json.dumps(result.versions),
        )
        with self._open() as connection:
            connection.execute("insert or replace into results values (?, ?, ?, ?, ?, ?, ?, ?)", row)
        return result

    def find(self, key: str) -> Result | None:
        """The result of a finished task, or None."""
        with self._open() as connection:
            row = connection.execute(f"select {_COLUMNS} from results where key = ?", (key,)).fetchone()
        return self._result(row) if row else None

    def find_settings(self, task: Task) -> Result | None:
        """The latest result of the same function and settings, whatever code and data it came from, or None.

        None for a task with secret settings: what is stored does not tell them apart.
        """
        if task.secret:
            return None
        settings = json.dumps(plain_values(dict(task.settings)), sort_keys=True)
        query = f"select {_COLUMNS} from results where function = ? and settings = ? order by finished desc limit 1"
        with self._open() as connection:
            row = connection.execute(query, (task.function, settings)).fetchone()
        return self._result(row) if row else None

    def results(self, sweep: str | None = None) -> list[Result]:
        """Every result, or those of one sweep, oldest first."""
        with self._open() as connection:
            rows = connection.execute(f"select {_COLUMNS} from results order by finished").fetchall()
        return [result for result in map(self._result, rows) if sweep is None or result.sweep == sweep]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection that commits; an error of SQLite becomes `InvalidInput`."""
        try:
            uri = f"{self.path.absolute().as_uri()}?{self._mode()}"
            with closing(sqlite3.connect(uri, uri=True, timeout=60)) as connection, connection:
                yield connection
        except sqlite3.DatabaseError as error:
            raise self._refusal(error) from None

    def _mode(self) -> str:
        if not self._read_only:
            return "mode=rwc"
        # Even a reader leaves files for the log beside a file in WAL mode, unless it trusts that nobody writes.
        written_to = self.path.with_name(f"{self.path.name}-wal").exists()
        return "mode=ro" if written_to else "mode=ro&immutable=1"

    def _result(self, row: tuple[Any, ...]) -> Result:
        sweep, function, settings, value, seconds, finished, used = row
        try:
            return Result(
                check.text("sweep", sweep),
                check.text("function", function),
                _without_seed(_table(settings)),
                json.loads(value),
                check.real("seconds", seconds, low=0.0),
                check.real("finished", finished),
                _table(used),
            )
        except (TypeError, ValueError, RecursionError) as error:
            raise self._refusal(f"A row of it is damaged: {error}") from None

    def _refusal(self, why: object) -> InvalidInput:
        return InvalidInput(f"store must be a file of results; got {str(self.path)!r}. {str(why).rstrip('.')}.")


def _table(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise check.fail("settings and versions", "tables", found)
    return found


def _without_seed(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a store from before seeds were left out: whoever has the seed can draw the noise again."""
    return {name: NOT_KEPT if name == "unsafe_seed" else value for name, value in settings.items()}


def versions() -> dict[str, str]:
    """Python, the packages that results depend on, and the first digits of this package's `code_fingerprint`."""
    return {"python": platform.python_version()} | dict(_installed(_PACKAGES)) | {"code": code_fingerprint()[:12]}


def _installed(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One flat row for each result: sweep, every setting, every number of its value, seconds."""
    return [
        {"sweep": result.sweep} | settings_row(result) | value_row(result) | {"seconds": round(result.seconds, 3)}
        for result in results
    ]


def settings_row(result: Result) -> dict[str, Any]:
    """Every setting of a result; those of a section as `section.name`."""
    return dict(_flat("", result.settings))


def value_row(result: Result) -> dict[str, Any]:
    """Every number and text of a result's value; those of a table in it as `table.name`."""
    value = result.value if isinstance(result.value, dict) else {"value": result.value}
    return dict(_flat("", {name: each for name, each in value.items() if name != LEDGER}))


def varying(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without the columns that are the same in all of them."""
    names = dict.fromkeys(name for row in rows for name in row)
    kept = [name for name in names if any(row.get(name) != rows[0].get(name) for row in rows)]
    return [{name: row[name] for name in kept if name in row} for row in rows]


def export(results: Sequence[Result], path: str | Path) -> None:
    """Write `table(results)` as .csv or .parquet (which needs the extra `data`)."""
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise check.fail("path", "a .csv or .parquet file", str(path))
    import pandas as pd

    from tacit import serialization as atomic

    frame = pd.DataFrame(table(results))
    text = frame.to_csv(index=False).encode() if path.suffix == ".csv" else frame.to_parquet(index=False)
    atomic.write_bytes(path, text)


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, list | tuple):
        yield prefix, json.dumps(value)
    else:
        yield prefix, _NOT_FINITE.get(value, value) if isinstance(value, str) else value
