"""The signatures of a store: one for each row, and one over all of them, so that none is taken away unnoticed."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit import check
from tacit.signing import Origin, latest_count, latest_place, new_id, origin_of, raise_count, signature_of

_ROW, _STORE = "result", "store"
TABLE = "create table if not exists whole (id integer primary key check (id = 1), content text)"
"""The table of the one signature over all rows."""


def row_signature(row: Sequence[Any]) -> str:
    """The signature of a row's cells, its key the first of them, as a text."""
    return json.dumps(signature_of(_ROW, list(row)))


def row_origin(row: Sequence[Any], signature: object) -> Origin:
    """Where a row came from, by the text that was kept with it; a row under another key is an edited one."""
    return origin_of(_ROW, list(row), _parsed(signature))


def store_origin(connection: sqlite3.Connection) -> Origin:
    """Whether the rows and open tasks of a store are those that this user's key signed last."""
    content = _content(connection)
    found = origin_of(_STORE, [content.get("whole"), _digest(connection)], content.get("signature"))
    return Origin.EDITED if found is Origin.OWN and content["whole"] is not True else found


def is_whole(connection: sqlite3.Connection, origin: Origin) -> bool:
    """Whether nothing that this user's key signed can have been taken away; a new store, or one without signatures."""
    if origin is not Origin.UNSIGNED:
        return origin is Origin.OWN
    queries = ("whole", "leases", "results where signature is not null")
    return not any(connection.execute(f"select 1 from {each}").fetchone() for each in queries)


def sign_store(connection: sqlite3.Connection, path: Path, *, origin: Origin, whole: bool) -> tuple[str, int] | None:
    """Sign all rows and open tasks; identity and count for `remember`, once they are on disk.

    Args:
        connection: in a transaction that wrote.
        path: of the store.
        origin: `store_origin` before the transaction wrote.
        whole: `is_whole` before; where something was lost, no later signature calls the store whole.
    """
    earlier = _content(connection).get("signature")
    id, count = "", 0
    if origin is Origin.OWN and isinstance(earlier, dict):
        id, count = earlier["id"], earlier["count"]
    # A copy counts for itself: it must not make the store that it was copied from look like an older version.
    if not id or latest_place(id) not in ("", str(path.resolve())):
        id, count = new_id(), 0
    count = 1 + max(latest_count(id), count)
    signature = signature_of(_STORE, [whole, _digest(connection)], id=id, count=count)
    text = json.dumps({"whole": whole, "signature": signature})
    connection.execute("insert or replace into whole values (1, ?)", (text,))
    return (id, count) if signature is not None else None


def check_latest(connection: sqlite3.Connection, path: Path, origin: Origin) -> None:
    """Refuse to work on an older version that was put back: tasks that ran since would run again unrecorded."""
    signature = _content(connection).get("signature")
    if origin is not Origin.ROLLED_BACK or not isinstance(signature, dict):
        return
    if latest_place(signature["id"]) == str(path.resolve()):
        hint = "An older one was put back: what ran since would run again. Use another file for a new store."
        raise check.fail("store", "the last version of it", str(path), hint)


def remember(signed: tuple[str, int] | None, path: Path) -> None:
    """Raise the counter of a store that was signed and is on disk."""
    if signed is not None:
        raise_count(*signed, path)


def _content(connection: sqlite3.Connection) -> dict[str, Any]:
    try:
        row = connection.execute("select content from whole").fetchone()
    except sqlite3.OperationalError:  # a store from before rows were signed
        return {}
    found = _parsed(row[0]) if row else {}
    return found if isinstance(found, dict) else {"signature": "damaged"}


def _digest(connection: sqlite3.Connection) -> str:
    rows = connection.execute("select key, signature from results order by key").fetchall()
    leases = connection.execute("select key, ran from leases order by key").fetchall()
    return hashlib.sha256(json.dumps([rows, leases]).encode()).hexdigest()


def _parsed(text: object) -> object:
    if text is None:
        return None
    try:
        return json.loads(text) if isinstance(text, str) else "damaged"
    except (ValueError, RecursionError):
        return "damaged"
