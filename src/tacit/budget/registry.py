"""`Registry`: every data set of a project and what was spent on it.

`DatasetBudget`: caps, reservations and the total of one data set.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tacit import check
from tacit.accounting import PLACES, Ledger
from tacit.budget.records import NOTICED, Held, Known, Parts, Steps, read_rows, record_hashes, shared, steps_of
from tacit.budget.scopes import Scope, in_words, target_spec
from tacit.budget.shared_ledger import Planned, Reservation, SharedLedger
from tacit.budget.store import VARIABLE, Draft, Row, Store
from tacit.budget.totals import check_caps, check_left, curve_of, total_of
from tacit.errors import InvalidInput
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.signing import latest_count, new_id, raise_count
from tacit.tradeoff import Target, TradeOff, check_target

FILE = "tacit-budget.sqlite"
"""Name of the registry in the project folder."""
SCOPES = ("fixed", "adaptive")


class DatasetBudget:
    """What was spent on one data set, and what may be.

    The total is the composition of everything that was reserved, whether or not it ran, by the exact accountant.

    Args:
        store: rows of the registry.
        name: of the data set.

    Example:
        >>> import tempfile
        >>> from tacit.budget import Registry
        >>> from tacit.mechanisms import Gaussian
        >>> from tacit.tradeoff import Epsilon
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dataset = Registry.create(f"{folder}/budget.sqlite").declare("patients")
        ...     dataset.cap(Epsilon(3.0, 1e-5))
        ...     first = dataset.reserve(Gaussian(2.0), label="mean age")
        ...     round(dataset.spent().epsilon(1e-5), 3), len(dataset.history())
        (1.993, 3)
    """

    def __init__(self, store: Store, name: str):
        self.store = store
        self.name = name
        store.refresh()
        self._cached = len(store.rows), self._find(store.rows)

    def __reduce__(self) -> Any:
        return DatasetBudget, (self.store, self.name)

    @property
    def known(self) -> Known:
        """What the registry says of the data set by now."""
        self.store.refresh()
        rows = self.store.rows
        if self._cached[0] != len(rows):
            self._cached = len(rows), self._find(rows)
        return self._cached[1]

    def cap(self, target: Target) -> None:
        """Set a cap; it replaces an earlier one of the same kind, which stays in the history.

        Raises `InvalidInput` under a filter, whose budget was fixed before its first run.
        """
        if self.known.scope.is_filter:
            hint = "A filter's budget is fixed before its first run."
            raise check.fail("cap", f"the budget of the {self.known.scope.says}, as declared", in_words(target), hint)
        self.append("", "cap", target_spec(check_target(target)))

    def held(self, id: str) -> Held:
        """The reservation `id`; raises `InvalidInput` where there is none."""
        found = self.known.held.get(id)
        if found is None:
            raise check.fail("reservation", f"one of {self.name!r}", id)
        return found

    def reserve(
        self,
        planned: Planned = (),
        *,
        label: str = "run",
        scope: str = "adaptive",
        part: tuple[str, int] | None = None,
        records: tuple[Any, Any] | None = None,
    ) -> Reservation:
        """Reserve `planned` before it runs; from now on it counts as spent.

        Args:
            planned: a ledger, a mechanism, or (mechanism, times) pairs; may be empty, and grow by `Reservation.cover`.
            label: what history and messages call the run.
            scope: "fixed" declares that noise, rate and steps were chosen before any release about these records;
                "adaptive" makes no such claim.
            part: (split, index) where the run reads one part of a division of the records only; see `split`.
            records: (x, y) that such a run reads, y perhaps None; each must be of its part.

        Raises:
            BudgetExceeded: a cap would be crossed; nothing was reserved.
            InvalidInput: relation, unit or scope do not fit.
        """
        steps = self._steps(planned)
        check.choice("scope", scope, SCOPES)
        if part is not None:
            self._check_part(part, records)
        made = Reservation(self, new_id())
        self._append_reserve(self._draft(made.id, check.text("label", label), scope, steps, made.block, part=part))
        return made

    def check(self, planned: Planned, label: str = "run") -> None:
        """Raise `BudgetExceeded` where `planned` would cross a cap; nothing is reserved."""
        self.store.refresh()
        self._check_caps(self._draft("", label, "adaptive", self._steps(planned)), self.store.rows)

    def check_left(self, label: str = "run") -> None:
        """Raise `BudgetExceeded` where no run at all is left under a cap, however noisy; nothing is reserved."""
        check_left(self.known, label)

    def _steps(self, planned: Planned) -> Steps:
        if isinstance(planned, Ledger):
            self.check_ledger(planned)
            planned = planned.mechanism.parts()
        elif isinstance(planned, Mechanism):
            planned = planned.parts()
        return steps_of(planned)

    def ledger(self, label: str = "run", *, scope: str = "adaptive") -> SharedLedger:
        """A new ledger whose every entry is reserved first, shared by processes, clones, copies and pickles."""
        return self.reserve(label=label, scope=scope).ledger()

    def check_ledger(self, ledger: Ledger) -> None:
        """Raise `InvalidInput` unless `ledger` has the relation and unit of the data set."""
        known = self.known
        relation = Relation.ADD_REMOVE if PLACES in ledger.assumptions else ledger.relation
        if known.relation not in (relation, ledger.relation) or ledger.unit != known.unit:
            rule = f"one for {known.relation} and the unit {known.unit!r}, as data set {self.name!r}"
            raise check.fail("ledger", rule, f"one for {ledger.relation.value}, {ledger.unit!r}")

    def total(self) -> Ledger:
        """A ledger of everything that was reserved, with what the runs said of facts and standing."""
        return total_of(self.known)

    def spent(self) -> TradeOff:
        """The total by the exact accountant; by the best other proven one where that has no answer."""
        return curve_of(self.total(), next(iter(self.known.caps.values()), None))

    def history(self) -> list[Row]:
        """Every row about the data set, oldest first."""
        self.store.refresh()
        return [row for row in self.store.rows if row.dataset == self.name]

    def note_untracked(self, label: str) -> None:
        """Write down that a run read these records without being charged: the total is at most claimed from now on."""
        self.append("", "untracked", {"label": check.text("label", label), "who": _who()})

    def note_audit(self, label: str) -> None:
        """Write down that models were trained on these records that are not released; they cost nothing."""
        self.append("", "audit", {"label": label, "who": _who(), "says": "models trained inside were not released"})

    def split(self, name: str, parts: int) -> Parts:
        """A division of the records into `parts` by a keyed hash of each record alone, so that parts are disjoint.

        Runs that reserve `part=(name, index)` and read `Parts.of(index, x, y)` compose in parallel: a record meets the
        runs of its own part only (McSherry 2009, Theorem 4).

        Raises:
            InvalidInput: the relation is not add_remove (a record that is replaced may change its part), the unit is
                not the record, or the name belongs to a division into another number of parts.
        """
        known = self.known
        if known.relation != "add_remove":
            hint = "A record that is replaced or blanked would change its part."
            raise check.fail("relation", "add_remove for parts by a hash of the record", known.relation, hint)
        if known.unit != "record":
            raise check.fail("unit", "record for parts by a hash of the record", known.unit, "Split by the unit's id.")
        parts = check.count("parts", parts, minimum=2)
        if known.splits.setdefault(check.text("name", name), parts) != parts:
            raise check.fail("parts", f"{known.splits[name]}, as the split {name!r} was declared", parts)
        if not any(row.kind == "split" and row.body["split"] == name for row in self.history()):
            self.append("", "split", {"split": name, "parts": parts})
        return self._parts(name, parts)

    def register(self, x: Any, y: Any = None) -> None:
        """Keep keyed hashes of the records, by which they are recognised; the rows tell neither values nor number."""
        hashes = record_hashes(self.store.key, x, y).tobytes()
        digest = self._digest(hashes)
        if digest not in self.known.fingerprints:
            self.store.keep_fingerprint(self.name, digest, hashes)
            self.append("", "fingerprint", {"digest": digest})

    def recognises(self, hashes: np.ndarray) -> bool:
        """Whether records with these hashes are those of the data set, or a part of them."""
        for digest in self.known.fingerprints:
            kept = self.store.fingerprint(self.name, digest)
            if self._digest(kept) != digest:
                raise InvalidInput(f"registry must be as tacit wrote it; the fingerprint of {self.name!r} was edited.")
            if shared(np.frombuffer(kept, dtype="<u8"), hashes) >= NOTICED:
                return True
        return False

    def _draft(
        self, id: str, label: str, scope: str, steps: Steps, block: str = "", head: Any = None, part: Any = None
    ) -> Draft:
        """The row that reserves `steps` for a run; its other fields are those of `Held`, of one block."""
        rows = [{**json.loads(text), "steps": times} for text, times in steps.items()]
        said = {"label": label, "scope": scope, "block": block, "who": _who(), "head": head or {}, "mechanisms": rows}
        return Draft(self.name, "reserve", id, said if part is None else said | {"part": list(part)})

    def _append_reserve(self, draft: Draft) -> None:
        """Append a row that reserves something, after a check of every cap, or of the filter."""
        while True:
            self.store.refresh()
            rows = self.store.rows
            self._check_caps(draft, rows)  # Composed while nobody waits, and again where a row came in between.
            seen = self._last(rows)
            if self.store.append(lambda now, seen=seen: [draft] if self._last(now) == seen else []):
                return

    def reserve_more(self, held: Held, missing: Steps, block: str, head: dict[str, Any]) -> None:
        """Reserve more for a run that has a reservation.

        Args:
            held: the reservation.
            missing: what to reserve.
            block: identity of the process or run that may use it.
            head: what its ledger says by now.

        Raises:
            BudgetExceeded: a cap would be crossed; nothing was reserved.
        """
        self._append_reserve(self._draft(held.id, held.label, held.scope, missing, block, head, held.part))

    def append(self, reservation: str, kind: str, body: dict[str, Any]) -> None:
        """Append a row, about a reservation where it names one."""
        self.store.append(lambda rows: [Draft(self.name, kind, reservation, body)])

    def _last(self, rows: tuple[Row, ...]) -> int:
        """Number of the last row about this data set."""
        return max((row.number for row in rows if row.dataset == self.name), default=0)

    def _check_caps(self, draft: Draft, rows: tuple[Row, ...]) -> None:
        if draft.body["mechanisms"]:
            ahead = Row(draft.dataset, draft.kind, draft.reservation, draft.body, len(rows) + 1, "", "")
            check_caps(self._find(rows), self._find((*rows, ahead)), draft.body["label"])

    def _find(self, rows: tuple[Row, ...]) -> Known:
        known = read_rows(rows)
        check.that(known, "budget", "the name of a declared data set", self.name, "Run tacit budget init NAME.")
        return known[check.choice("budget", self.name, list(known))]

    def _digest(self, hashes: bytes) -> str:
        return self.store.key.mac(f"fingerprint of {self.name}", hashes)

    def _check_part(self, part: tuple[str, int], records: tuple[Any, Any] | None) -> None:
        parts = self.known.splits.get(part[0])
        if parts is None or not 0 <= part[1] < parts:
            raise check.fail("part", f"one of a declared split of {self.name!r}", part, "Declare it by split().")
        if records is None:
            raise check.fail("records", "given for a run on a part, as (x, y)", None)
        if len(self._parts(part[0], parts).of(part[1], *records)[0]) != len(records[0]):
            hint = "Take them from split(...).of(index, x, y)."
            raise check.fail("records", f"of part {part[1]} of {part[0]!r} only", "others among them", hint)

    def _parts(self, name: str, parts: int) -> Parts:
        return Parts(self.store.key, f"{self.store.id} {self.name} {name}", parts)


def _who() -> str:
    """User and computer of this process."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{platform.node()}"


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
