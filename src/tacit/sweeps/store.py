"""Results of sweeps in one SQLite file, written one by one as they come: a killed sweep continues where it was."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.plain import plain
from tacit.sweeps.task import Task, code_fingerprint

_TABLE = """
create table if not exists results (
    key text primary key, sweep text, function text, settings text, value text, seconds real, finished real,
    versions text)
"""
_PACKAGES = ("tacit", "torch", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Result:
    """What one task gave, with the time it took and the versions that ran."""

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

    Raises:
        InvalidInput: the file is not such a store.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(self._open()) as connection, connection:
                connection.execute("pragma journal_mode = wal")
                connection.execute(_TABLE)
        except sqlite3.DatabaseError as error:
            raise InvalidInput(f"store must be a file of results; got {str(path)!r}. {error}.") from None

    def add(self, key: str, sweep: str, task: Task, value: Any, seconds: float) -> Result:
        """Record a finished task; it is on disk when this returns."""
        result = Result(sweep, task.function, dict(task.settings), plain(value), seconds, time.time(), versions())
        row = (
            key,
            sweep,
            task.function,
            json.dumps(plain(result.settings), sort_keys=True),
            json.dumps(result.value),
            seconds,
            result.finished,
            json.dumps(result.versions),
        )
        with closing(self._open()) as connection, connection:
            connection.execute("insert or replace into results values (?, ?, ?, ?, ?, ?, ?, ?)", row)
        return result

    def find(self, key: str) -> Result | None:
        """The result of a task that is done, or None."""
        with closing(self._open()) as connection:
            row = connection.execute(f"select {_COLUMNS} from results where key = ?", (key,)).fetchone()
        return _result(row) if row else None

    def find_settings(self, task: Task) -> Result | None:
        """The latest result of the same function and settings, whatever code and data it came from, or None."""
        settings = json.dumps(plain(dict(task.settings)), sort_keys=True)
        query = f"select {_COLUMNS} from results where function = ? and settings = ? order by finished desc limit 1"
        with closing(self._open()) as connection:
            row = connection.execute(query, (task.function, settings)).fetchone()
        return _result(row) if row else None

    def results(self, sweep: str | None = None) -> list[Result]:
        """Every result, or those of one sweep, oldest first."""
        with closing(self._open()) as connection:
            rows = connection.execute(f"select {_COLUMNS} from results order by finished").fetchall()
        return [result for result in map(_result, rows) if sweep is None or result.sweep == sweep]

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)


_COLUMNS = "sweep, function, settings, value, seconds, finished, versions"


def versions() -> dict[str, str]:
    """Python, the packages that results depend on, and the first digits of this package's `code_fingerprint`."""
    return {"python": platform.python_version()} | dict(_installed(_PACKAGES)) | {"code": code_fingerprint()[:12]}


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One flat row a result: sweep, every setting, every number of its value, seconds."""
    return [
        {"sweep": result.sweep}
        | dict(_flat("", result.settings))
        | dict(_flat("", result.value if isinstance(result.value, dict) else {"value": result.value}))
        | {"seconds": round(result.seconds, 3)}
        for result in results
    ]


def export(results: Sequence[Result], path: str | Path) -> None:
    """Write `table(results)` as .csv or .parquet (which needs the extra `data`)."""
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise check.fail("path", "a .csv or .parquet file", str(path))
    import pandas as pd

    from tacit import atomic

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
        yield prefix, value


def _result(row: tuple[Any, ...]) -> Result:
    sweep, function, settings, value, seconds, finished, used = row
    return Result(sweep, function, json.loads(settings), json.loads(value), seconds, finished, json.loads(used))


def _installed(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
