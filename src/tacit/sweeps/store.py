"""The store of results of a sweep: one SQLite file, read as flat rows.

Each result is written and signed the moment it is finished, so that a killed sweep continues where it was. A task is
leased by the sweep that runs it: what two shells start on one store runs once, and how often a task was started stands
beside its result.

The signatures of a store: one for each row, and one over all of them, so that none is taken away unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.locking import Lock
from tacit.serialization import json_value, plain_values, versions_of, write_bytes
from tacit.signing import Origin, latest_count, latest_place, new_id, origin_of, raise_count, signature_of
from tacit.standing import Standing
from tacit.sweeps.task import Task, code_fingerprint


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


def _place(path: Path, owner: str) -> Path:
    # The id comes from the store, which may be edited: it names a file beside the store and none elsewhere.
    return path.with_name(f"{path.name}.{Path(owner).name[:64]}")


NOT_KEPT = "not kept"
"""What a store holds in place of the seed of the noise."""
LEDGER = "ledger"
"""The key of a run's value that holds its ledger; tables leave it out."""
_STANDING = "guarantee.standing"
_COLUMNS = ("key", "ran", "owner", "result", "signature")
_TABLES = (
    # How often each task was started, who runs it, and its result, once there is one.
    "create table if not exists tasks (key text primary key, ran integer, owner text, result text, signature text)",
    # The one signature over all rows.
    "create table if not exists whole (id integer primary key check (id = 1), content text)",
)


@dataclass(frozen=True)
class Result:
    """Result of one task, with its duration and the versions that ran.

    Attributes:
        sweep: its name.
        function: of the task.
        settings: of the task.
        value: what the function returned.
        seconds: that it took.
        finished: when, in seconds since 1970.
        versions: of the packages that ran.
        ran: how often the task was started; each start that did not finish may have released something too.
        origin: what its signature, and that of the store, say of it.
    """

    sweep: str
    function: str
    settings: dict[str, Any]
    value: Any
    seconds: float
    finished: float
    versions: dict[str, str]
    ran: int = 1
    origin: Origin = Origin.OWN

    def __post_init__(self) -> None:
        for name, kind in {"sweep": str, "function": str, "settings": dict, "versions": dict}.items():
            check.instance(name, getattr(self, name), kind, "as a sweep stores it")
        check.real("seconds", self.seconds, low=0.0)
        check.real("finished", self.finished)
        check.count("ran", self.ran)

    @property
    def of(self) -> str:
        """The word "run" where the result is as this user's sweep wrote it; "spec" where it is only what is written."""
        return "run" if self.origin.trusted else "spec"


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
            columns = tuple(row[1] for row in connection.execute("pragma table_info(tasks)"))
            empty = connection.execute("select 1 from sqlite_master").fetchone() is None
            if columns != _COLUMNS and (read_only or not empty):
                raise self._refusal("Its tables are not those of a store")
            if not read_only:
                connection.execute("pragma journal_mode = wal")
                for table in _TABLES:
                    connection.execute(table)

    def add(self, key: str, sweep: str, task: Task, value: Any, seconds: float) -> Result:
        """Record a finished task; it is on disk when this returns.

        Args:
            key: of the task, its code and its data.
            sweep: name of the sweep.
            task: that was run.
            value: its result, JSON.
            seconds: that it took.

        Raises:
            InvalidInput: the store is damaged.
        """
        settings = dict(sorted(task.settings.items()))
        content = {"sweep": sweep, "function": task.function, "settings": settings, "value": value}
        content |= {"seconds": float(seconds), "finished": time.time(), "versions": versions()}
        text = json.dumps(plain_values(content))
        with self._write() as (connection, origin):
            before, owner, _ = _row(connection, key)
            ran = before if owner else check.count("ran", before, minimum=0) + 1
            row = (key, ran, None, text, json.dumps(signature_of(_ROW, [key, ran, text])))
            connection.execute("insert or replace into tasks values (?, ?, ?, ?, ?)", row)
        return self._result(row, origin)

    def claim(self, key: str, owner: Owner) -> bool:
        """Whether the task with this key is now `owner`'s to run: it is not stored, and nobody is at work on it."""
        with self._write() as (connection, _):
            ran, holder, result = _row(connection, key)
            if result is not None or (holder and not owner.outlives(holder)):
                return False
            row = (key, ran + 1, owner.id)
            connection.execute("insert or replace into tasks values (?, ?, ?, null, null)", row)
            return True

    def owner(self) -> Owner:
        """A new holder of leases, until it is closed or its process ends."""
        return Owner(self.path)

    @property
    def unfinished(self) -> int:
        """How often tasks were started of which no result is stored; what those have released is in no row."""
        with self._open() as connection:
            return connection.execute("select coalesce(sum(ran), 0) from tasks where result is null").fetchone()[0]

    def find(self, key: str) -> Result | None:
        """The result of a finished task, or None."""
        found = self._select("key = ?", key)
        return found[0] if found else None

    def results(self, sweep: str | None = None) -> list[Result]:
        """Every result, or those of one sweep, oldest first."""
        found = sorted(self._select("true"), key=lambda result: result.finished)
        return [result for result in found if sweep is None or result.sweep == sweep]

    def _select(self, which: str, *values: str) -> list[Result]:
        with self._open() as connection:
            query = f"select {', '.join(_COLUMNS)} from tasks where result is not null and {which}"
            rows = connection.execute(query, values).fetchall()
            origin = store_origin(connection) if rows else Origin.UNSIGNED
        return [self._result(row, origin) for row in rows]

    @contextmanager
    def _write(self) -> Iterator[tuple[sqlite3.Connection, Origin]]:
        """One transaction, alone on the store, that ends with its signature."""
        with self._open() as connection:
            connection.execute("begin immediate")
            origin, earlier = store_origin(connection), _content(connection).get("signature")
            id, count = new_id(), 0
            if origin in (Origin.OWN, Origin.ROLLED_BACK) and isinstance(earlier, dict):
                place = latest_place(earlier["id"])
                if origin is Origin.ROLLED_BACK and place == str(self.path.resolve()):
                    hint = "An older one was put back: what ran since would run again. Use another file for a new "
                    hint += "store."
                    raise check.fail("store", "the last version of it", str(self.path), hint)
                # A copy counts for itself: it must not make the store that it was copied from look like an older one.
                if origin is Origin.OWN and place in ("", str(self.path.resolve())):
                    id, count = earlier["id"], earlier["count"]
            # Where something that this user's key signed may have been taken away, no later signature says otherwise.
            whole = origin is Origin.OWN or (origin is Origin.UNSIGNED and _is_unsigned(connection))
            yield connection, Origin.OWN if whole else origin
            count = 1 + max(latest_count(id), count)
            signature = signature_of(_STORE, [whole, _digest(connection)], id=id, count=count)
            text = json.dumps({"whole": whole, "signature": signature})
            connection.execute("insert or replace into whole values (1, ?)", (text,))
        if signature is not None:
            raise_count(id, count, self.path)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection that commits; an error of SQLite becomes `InvalidInput`."""
        mode = "mode=rwc"
        if self._read_only:
            # Even a reader leaves files for the log beside a file in WAL mode, unless it trusts that nobody writes.
            mode = "mode=ro" if self.path.with_name(f"{self.path.name}-wal").exists() else "mode=ro&immutable=1"
        try:
            uri = f"{self.path.absolute().as_uri()}?{mode}"
            with closing(sqlite3.connect(uri, uri=True, timeout=60)) as connection, connection:
                yield connection
        except sqlite3.DatabaseError as error:
            raise self._refusal(error) from None

    def _result(self, row: tuple[Any, ...], store: Origin) -> Result:
        key, ran, _, text, signature = row
        origin = origin_of(_ROW, [key, ran, text], _parsed(signature))
        try:
            return Result(**json_value(text), ran=ran, origin=store if origin.trusted else origin)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._refusal(f"A row of it is damaged: {error}") from None

    def _refusal(self, why: object) -> InvalidInput:
        return InvalidInput(f"store must be a file of results; got {str(self.path)!r}. {str(why).rstrip('.')}.")


def _row(connection: sqlite3.Connection, key: str) -> tuple[int, str | None, str | None]:
    """How often a task was started, who runs it, and its result."""
    found = connection.execute("select ran, owner, result from tasks where key = ?", (key,)).fetchone()
    return found or (0, None, None)


def versions() -> dict[str, str]:
    """Python, the packages that results depend on, and the first digits of this package's `code_fingerprint`."""
    return versions_of("tacit", "torch", "numpy", "scipy", "scikit-learn") | {"code": code_fingerprint()[:12]}


_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One flat row for each result: sweep, every setting, every number of its value, seconds, starts, `Result.of`."""
    rows = []
    for result in results:
        row = {"sweep": result.sweep} | settings_row(result) | value_row(result)
        rows.append(row | {"seconds": round(result.seconds, 3), "ran": result.ran, "of": result.of})
    return rows


def settings_row(result: Result) -> dict[str, Any]:
    """Every setting of a result; those of a section as `section.name`."""
    return dict(_flat("", result.settings))


def value_row(result: Result) -> dict[str, Any]:
    """Every number and text of a result's value; those of a table in it as `table.name`.

    The bound of a result that nobody vouches for is `stated`, as that of a received run.
    """
    value = result.value if isinstance(result.value, dict) else {"value": result.value}
    row = dict(_flat("", {name: each for name, each in value.items() if name != LEDGER}))
    if not result.origin.trusted and row.get(_STANDING) in (Standing.PROVEN, Standing.CONDITIONAL):
        row[_STANDING] = "stated"
    return row


def varying(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without the columns that are the same in all of them."""
    names = dict.fromkeys(name for row in rows for name in row)
    kept = [name for name in names if any(row.get(name) != rows[0].get(name) for row in rows)]
    return [{name: row[name] for name in kept if name in row} for row in rows]


def export(results: Sequence[Result], path: str | Path) -> None:
    """Write `table(results)` as .csv or .parquet (which needs the extra `data`)."""
    path = Path(path)
    check.that(path.suffix in (".csv", ".parquet"), "path", "a .csv or .parquet file", str(path))
    import pandas as pd

    frame = pd.DataFrame(table(results))
    write_bytes(path, frame.to_csv(index=False).encode() if path.suffix == ".csv" else frame.to_parquet(index=False))


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, list | tuple):
        yield prefix, json.dumps(value)
    else:
        yield prefix, _NOT_FINITE.get(value, value) if isinstance(value, str) else value


_ROW, _STORE = "result", "store"


def store_origin(connection: sqlite3.Connection) -> Origin:
    """Whether the rows and open tasks of a store are those that this user's key signed last."""
    content = _content(connection)
    found = origin_of(_STORE, [content.get("whole"), _digest(connection)], content.get("signature"))
    return Origin.EDITED if found is Origin.OWN and content["whole"] is not True else found


def _is_unsigned(connection: sqlite3.Connection) -> bool:
    """Whether a store is new, or holds only results without signatures."""
    queries = ("whole", "tasks where result is null or signature is not null")
    return not any(connection.execute(f"select 1 from {each}").fetchone() for each in queries)


def _content(connection: sqlite3.Connection) -> dict[str, Any]:
    row = connection.execute("select content from whole").fetchone()
    found = _parsed(row[0]) if row else {}
    return found if isinstance(found, dict) else {"signature": "damaged"}


def _digest(connection: sqlite3.Connection) -> str:
    rows = connection.execute("select key, ran, signature from tasks order by key").fetchall()
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _parsed(text: object) -> object:
    if text is None:
        return None
    try:
        return json.loads(text) if isinstance(text, str) else "damaged"
    except (ValueError, RecursionError):
        return "damaged"
