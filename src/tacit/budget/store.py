"""`Store`: the signed, append-only rows of a registry in SQLite or PostgreSQL."""

import hmac
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.locking import writing
from tacit.signing import latest_count, new_id, raise_count, signing_key

VARIABLE = "TACIT_BUDGET"
"""Environment variable with the path or URL of the registry."""
_PATIENCE = 60.0
"""Seconds that a transaction waits for another one; each takes milliseconds."""
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "afs")  # file systems without the locks SQLite needs
_KIND = "budget entry"
_TABLES = (
    "CREATE TABLE entries (number BIGINT PRIMARY KEY, time TEXT NOT NULL, dataset TEXT NOT NULL, kind TEXT NOT NULL, "
    "reservation TEXT NOT NULL, body TEXT NOT NULL, link TEXT NOT NULL UNIQUE)",
    "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, signer TEXT NOT NULL, "
    "counter BIGINT NOT NULL, link TEXT NOT NULL)",
    "CREATE TABLE fingerprints (dataset TEXT NOT NULL, digest TEXT NOT NULL, hashes BYTEA NOT NULL, "
    "PRIMARY KEY (dataset, digest))",
)
"""Signed entries that are only appended, their head, and fingerprints of records."""
_REFUSE = "a registry is only appended to"
_TRIGGERS = {
    "sqlite": tuple(
        f"CREATE TRIGGER entries_{act.lower()} BEFORE {act} ON entries BEGIN SELECT RAISE(ABORT, '{_REFUSE}'); END"
        for act in ("UPDATE", "DELETE")
    ),
    "postgresql": (
        "CREATE FUNCTION tacit_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSE}'; END $$",
        "CREATE TRIGGER entries_append_only BEFORE UPDATE OR DELETE ON entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION tacit_append_only()",
    ),
}


@dataclass(frozen=True)
class Draft:
    """An entry before it is appended.

    Attributes:
        dataset: name of the data set.
        kind: what the entry says, such as "reserve".
        reservation: identity of the reservation that it belongs to; empty without one.
        body: plain values.
    """

    dataset: str
    kind: str
    reservation: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Row(Draft):
    """An entry of a registry.

    Attributes:
        number: 1, 2, ... without gaps.
        time: when it was appended, in UTC.
        link: HMAC of the entry and of the link before it.
    """

    number: int = 0
    time: str = ""
    link: str = ""


class Store:
    """Every row since the beginning, each signed together with all before it.

    Rows are only appended. Whoever edits, removes or inserts a row without the key breaks the chain; an older copy of
    the whole is recognised by the counter that `tacit.signing` keeps beside the key.

    Args:
        url: path of an SQLite file, or a URL that SQLAlchemy knows.
        create: make the tables where there are none.

    Raises:
        InvalidInput: there is no registry, it was edited or rolled back, or it was made with another key.
    """

    def __init__(self, url: str | Path, *, create: bool = False):
        import sqlalchemy.event

        self.url = _url(url)
        self.path = None if self.url.database is None or self.url.drivername != "sqlite" else Path(self.url.database)
        if self.path is not None:
            _check_file(self.path, create)
        self._engine = sqlalchemy.create_engine(self.url, connect_args={"timeout": _PATIENCE} if self.path else {})
        if self.path is not None:
            sqlalchemy.event.listen(self._engine, "connect", _on_connect)
            sqlalchemy.event.listen(self._engine, "begin", _begin_immediate)
        self._rows: list[Row] = []
        self._link = ""
        key = signing_key()
        if key is None:
            raise InvalidInput(
                "TACIT_KEY must be a key that can be read or made: a registry signs every entry; got none."
            )
        self.key, self.id = key, ""
        if create:
            self._create()
        self.refresh()

    def __reduce__(self) -> Any:
        return _opened, (self.place,)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every row that was read so far, oldest first."""
        return tuple(self._rows)

    def refresh(self) -> None:
        """Read and check what was appended since."""
        with self._transaction() as run:
            self._read(run)

    def append(self, make: Callable[[tuple[Row, ...]], Sequence[Draft]]) -> tuple[Row, ...]:
        """Append what `make` gives for the rows so far, in one transaction; nobody appends in between."""
        with self._transaction() as run:
            self._read(run)
            added = [self._insert(run, draft) for draft in make(self.rows)]
            if added:
                run("UPDATE head SET counter = :counter, link = :link", counter=len(self._rows), link=self._link)
        if added:
            raise_count(self.id, len(self._rows), self.place)
        return tuple(added)

    @property
    def place(self) -> str:
        """Where it is, without a password."""
        return str(self.path) if self.path is not None else self.url.render_as_string(hide_password=True)

    def keep_fingerprint(self, dataset: str, digest: str, hashes: bytes) -> None:
        """Keep keyed hashes of records; the entry that vouches for them holds `digest`."""
        statement = "INSERT INTO fingerprints (dataset, digest, hashes) VALUES (:d, :x, :h) ON CONFLICT DO NOTHING"
        with self._transaction() as run:
            run(statement, d=dataset, x=digest, h=hashes)

    def fingerprint(self, dataset: str, digest: str) -> bytes:
        """The keyed hashes whose entry holds `digest`.

        Raises:
            InvalidInput: they are gone.
        """
        statement = "SELECT hashes FROM fingerprints WHERE dataset = :d AND digest = :x"
        with self._transaction() as run:
            found = run(statement, d=dataset, x=digest).first()
        if found is None:
            raise InvalidInput(f"registry must hold the fingerprint of {dataset!r}; it was removed. Restore a backup.")
        return bytes(found[0])

    def _create(self) -> None:
        import sqlalchemy

        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with writing("registry", self.path) if self.path is not None else nullcontext():
            if not sqlalchemy.inspect(self._engine).has_table("head"):
                with self._transaction() as run:
                    for statement in (*_TABLES, *_TRIGGERS.get(self._engine.dialect.name, ())):
                        run(statement)
            with self._transaction() as run:
                statement = "INSERT INTO head (one, id, signer, counter, link) VALUES (1, :id, :key, 0, '')"
                run(statement + " ON CONFLICT DO NOTHING", id=new_id(), key=self.key.id)

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., Any]]:
        """Context of one transaction: `run(statement, **values)`; an error in it undoes everything."""
        import sqlalchemy.exc

        before, link = len(self._rows), self._link
        try:
            with self._engine.begin() as connection:
                yield lambda statement, **values: connection.execute(sqlalchemy.text(statement), values)
        except BaseException as error:
            del self._rows[before:]
            self._link = link
            if not isinstance(error, sqlalchemy.exc.SQLAlchemyError):
                raise
            told = str(getattr(error, "orig", error)).strip().partition("\n")[0]
            raise InvalidInput(f"registry must be a database that works; got {self.place!r}. {told}.") from None

    def _read(self, run: Callable[..., Any]) -> None:
        # Nobody appends between the head and the entries that it counts: SQLite locks with BEGIN IMMEDIATE.
        locked = " FOR UPDATE" if self.path is None else ""
        head = run("SELECT id, signer, counter, link FROM head WHERE one = 1" + locked).first()
        if head is None:
            raise InvalidInput(f"registry must be one that tacit made; got {self.place!r}. Run tacit budget init.")
        self.id, signer, counter, link = head
        if signer != self.key.id:
            hint = "Set TACIT_KEY to the key file that its users share."
            raise InvalidInput(
                f"registry must be opened with the key {signer} that signed it; got {self.key.id}. {hint}"
            )
        statement = "SELECT number, time, dataset, kind, reservation, body, link FROM entries WHERE number > :n"
        for found in run(statement + " ORDER BY number", n=len(self._rows)):
            self._take(found)
        if (counter, link) != (len(self._rows), self._link) or counter < latest_count(self.id):
            missing = max(latest_count(self.id), counter) - len(self._rows)
            what = f"{missing} entries are missing" if missing > 0 else "its head was changed"
            raise InvalidInput(f"registry must hold every entry that was made; {what}. Restore the latest copy.")

    def _take(self, found: Any) -> None:
        number, when, dataset, kind, reservation, text, link = found
        try:
            row = Row(dataset, kind, reservation, json.loads(text), number, when, link)
        except (TypeError, ValueError):
            row = None
        if row is None or number != len(self._rows) + 1 or not hmac.compare_digest(self._linked(row), str(link)):
            raise InvalidInput(
                f"registry must be as tacit wrote it; entry {number} was edited. Restore the latest copy."
            )
        self._rows.append(row)
        self._link = link

    def _insert(self, run: Callable[..., Any], draft: Draft) -> Row:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        row = Row(**vars(draft), number=len(self._rows) + 1, time=when)
        row = replace(row, link=self._linked(row))
        statement = "INSERT INTO entries VALUES (:number, :time, :dataset, :kind, :reservation, :body, :link)"
        run(statement, **vars(row) | {"body": json.dumps(row.body, sort_keys=True)})
        self._rows.append(row)
        self._link = row.link
        return row

    def _linked(self, row: Row) -> str:
        fields = [self._link, self.id, row.number, row.time, row.dataset, row.kind, row.reservation, row.body]
        return self.key.mac(_KIND, json.dumps(fields, sort_keys=True).encode())


def _opened(place: str) -> Store:
    """A store in another process; a password comes from TACIT_BUDGET there and is in no pickle."""
    return Store(os.environ.get(VARIABLE, place) if "***" in place else place)


def _url(url: str | Path) -> Any:
    import sqlalchemy.exc

    text = str(url)
    if "://" not in text:
        return sqlalchemy.URL.create("sqlite", database=str(Path(text).expanduser().resolve()))
    try:
        found = sqlalchemy.make_url(text)
    except sqlalchemy.exc.ArgumentError:
        raise check.fail("registry", "a path or a URL such as postgresql://host/name", "another text") from None
    if found.drivername in ("postgres", "postgresql"):
        return found.set(drivername="postgresql+psycopg")
    if found.drivername == "sqlite":
        return found.set(database=str(Path(found.database or "").expanduser().resolve()))
    return found


def _check_file(path: Path, create: bool) -> None:
    check.that(create or path.is_file(), "registry", "a file that exists", str(path), "Run tacit budget init.")
    system = _file_system(path)
    hint = "SQLite cannot lock it there: use PostgreSQL by a URL."
    check.that(system not in _NETWORK, "registry", "on a local disk", f"{path} on {system}", hint)


def _file_system(path: Path) -> str:
    """Type of the file system that holds `path`; empty where the system does not tell."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return ""
    inside = [(len(where), kind) for where, kind in mounts if path.resolve().is_relative_to(where)]
    return max(inside, default=(0, ""))[1]


def _on_connect(connection: Any, _: object) -> None:
    connection.isolation_level = None  # SQLAlchemy begins transactions, not the driver.
    # A reservation is on disk before any noise is drawn, whatever happens to the machine.
    connection.execute("PRAGMA synchronous=FULL").close()


def _begin_immediate(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
