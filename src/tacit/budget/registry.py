"""`Registry`: every data set of a project and what was spent on it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit import check
from tacit.budget.dataset import DatasetBudget
from tacit.budget.records import read_rows, record_hashes
from tacit.budget.scopes import Scope
from tacit.budget.store import VARIABLE, Draft, Row, Store
from tacit.errors import InvalidInput
from tacit.relation import Relation
from tacit.signing import latest_count, raise_count

FILE = "tacit-budget.sqlite"
"""Name of the registry in the project folder."""


class Registry:
    """Data sets and what was spent on them, in one SQLite file or a PostgreSQL database.

    Args:
        url: path of the file, or URL such as postgresql://host/name.

    Raises:
        InvalidInput: there is no registry, it was edited or rolled back, or another key signed it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     registry = Registry.create(f"{folder}/budget.sqlite")
        ...     _ = registry.declare("patients", unit="patient")
        ...     Registry(f"{folder}/budget.sqlite").names
        ['patients']
    """

    def __init__(self, url: str | Path):
        self.store = Store(url)

    @classmethod
    def create(cls, url: str | Path) -> Registry:
        """The registry at `url`, made where there is none.

        Raises:
            InvalidInput: there was one in its place whose file is gone.
        """
        made = cls.__new__(cls)
        _check_not_removed(url)
        made.store = Store(url, create=True)
        if made.store.path is not None:
            raise_count(_id_of_place(made.store.path), 1, made.store.path)
        return made

    @property
    def names(self) -> list[str]:
        """Every declared data set."""
        self.store.refresh()
        return list(read_rows(self.store.rows))

    def declare(
        self,
        name: str,
        *,
        unit: str = "record",
        relation: Relation | str = Relation.ADD_REMOVE,
        facts: Mapping[str, Any] | None = None,
        scope: Scope | str = "adaptive",
    ) -> DatasetBudget:
        """Declare a data set of which nothing has been spent.

        Args:
            name: what commands call it.
            unit: the privacy unit.
            relation: neighbouring relation of its total, hence of every run that is charged.
            facts: what is public about it, such as {"records": 32561}.
            scope: what may follow earlier outputs: "adaptive", "fixed", "odometer", or a `Scope` such as a filter's.

        Raises:
            InvalidInput: there is one of that name.
        """
        check.printable("name", check.text("name", name))
        body = {
            "unit": check.text("unit", unit),
            "relation": Relation.parse(relation).value,
            "facts": dict(facts or {}),
            "scope": (scope if isinstance(scope, Scope) else Scope(scope)).spec(),
        }

        def make(rows: tuple[Row, ...]) -> list[Draft]:
            if name in read_rows(rows):
                raise check.fail("name", "one that no data set has yet", name, "Its budget goes on: use it.")
            return [Draft(name, "declare", "", body)]

        self.store.append(make)
        return DatasetBudget(self.store, name)

    def dataset(self, name: str) -> DatasetBudget:
        """The data set called `name`; raises `InvalidInput` with the nearest name where there is none."""
        return DatasetBudget(self.store, name)

    def recognise(self, x: Any, y: Any = None) -> list[str]:
        """Names of the data sets that hold these records, or a part of them, whatever they are called here."""
        hashes = record_hashes(self.store.key, x, y)
        return [name for name in self.names if self.dataset(name).recognises(hashes)]

    def verify(self) -> int:
        """The number of entries, every one of which was checked anew; raises `InvalidInput` where one was edited."""
        fresh = Store(self.store.url.render_as_string(hide_password=False))
        for name in read_rows(fresh.rows):
            DatasetBudget(fresh, name).recognises(record_hashes(fresh.key, []))
        return len(fresh.rows)


def find_registry(url: str | Path | None = None) -> Registry | None:
    """The registry at `url`, else that of TACIT_BUDGET, else the nearest above the working folder; None without one."""
    given = url if url is not None else os.environ.get(VARIABLE) or None
    if given is not None:
        return Registry(given)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return Registry(folder / FILE)
    _check_not_removed(here / FILE)
    return None


def _check_not_removed(url: str | Path) -> None:
    if "://" not in str(url):
        path = Path(url).expanduser().resolve()
        if not path.exists() and latest_count(_id_of_place(path)):
            hint = "and with it what was spent. Restore a copy."
            raise InvalidInput(f"registry must be where it was; {str(path)!r} was removed, {hint}")


def _id_of_place(path: Path) -> str:
    """Name of the counter that remembers that there is a registry at `path`."""
    return hashlib.sha256(b"tacit budget\0" + str(path.resolve()).encode()).hexdigest()[:32]
