"""What the rows of a registry say: data sets, their caps, and reservations with what each of them holds.

Keyed hashes of records, by which the same records are recognised under another name, in a subset or in a fold.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit import check
from tacit.accounting import Facts, Ledger
from tacit.accounting.adaptivity import FOLLOWING, PAST_PLAN
from tacit.budget.scopes import Scope, target_from_spec
from tacit.budget.store import Row
from tacit.mechanisms import Mechanism, from_spec
from tacit.signing import SigningKey
from tacit.standing import Standing
from tacit.tradeoff import Target

Steps = Counter[str]
"""How often each mechanism, given by its JSON text, may run."""
_FOLLOWING = {part for sentence in (*FOLLOWING, PAST_PLAN) for part in sentence.split("; ")}
RESERVED, SETTLED, ABANDONED = "reserved", "settled", "abandoned"


@dataclass
class Held:
    """A reservation, as its rows tell it.

    Attributes:
        id: random identity.
        label: what the run is called.
        scope: how its settings were chosen: "fixed", "adaptive", or one of an accountant for adaptive choices.
        time: of its first row, in UTC.
        number: of its first row.
        status: "reserved", "settled" or "abandoned".
        blocks: per process or run that holds a part of it, what it may run.
        heads: per block, what its ledger said of facts, assumptions and standing last.
        part: (split, index) where it reads one part of the records only.
    """

    id: str
    label: str
    scope: str
    time: str
    number: int
    status: str = RESERVED
    blocks: dict[str, Steps] = field(default_factory=dict)
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)
    part: tuple[str, int] | None = None

    @property
    def steps(self) -> Steps:
        """Everything that it may run."""
        return sum(self.blocks.values(), Counter())

    def ledger(self, relation: str, unit: str, *, covered: bool = False) -> Ledger:
        """What it may have run, with what its ledgers said of it.

        Args:
            relation: neighbouring relation.
            unit: privacy unit.
            covered: whether a filter covers what its settings followed.
        """
        found = Ledger(relation=relation, unit=unit)
        for mechanism, steps in mechanisms(self.steps):
            found.add(mechanism, steps, self.label)
        for head in self.heads.values():
            take_head(found, _covered(head) if covered else head)
        return found


@dataclass
class Known:
    """A data set, as its rows tell it.

    Attributes:
        name: of the data set.
        relation: neighbouring relation of its total.
        unit: privacy unit.
        facts: what is public about it.
        caps: per kind of target, the one in force.
        held: reservations by identity, in the order they were made.
        scope: what the total is proven for.
        reserved: identities of reservations, one for each row that reserved something, oldest first.
        fingerprints: digests of keyed hashes of its records.
        splits: number of parts of each division of its records.
        untracked: labels of runs on these records that were not charged.
    """

    name: str
    relation: str
    unit: str
    facts: dict[str, Any]
    scope: Scope = field(default_factory=Scope)
    caps: dict[str, Target] = field(default_factory=dict)
    reserved: list[str] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)
    fingerprints: list[str] = field(default_factory=list)
    splits: dict[str, int] = field(default_factory=dict)
    untracked: list[str] = field(default_factory=list)


def read_rows(rows: Iterable[Row]) -> dict[str, Known]:
    """Every data set by its name."""
    known: dict[str, Known] = {}
    for row in rows:
        if row.kind == "declare":
            body = row.body
            scope = Scope.from_spec(body.get("scope", {"kind": "adaptive"}))  # Absent before there were scopes.
            caps: dict[str, Target] = {} if scope.budget is None else {"epsilon": scope.budget}
            known[row.dataset] = Known(row.dataset, body["relation"], body["unit"], body["facts"], scope, caps)
        else:
            _take(known[row.dataset], row)
    return known


def mechanisms(steps: Steps) -> list[tuple[Mechanism, int]]:
    """The mechanisms behind their JSON texts."""
    return [(from_spec(json.loads(text))[0], times) for text, times in steps.items()]


def steps_of(parts: Iterable[tuple[Mechanism, int]]) -> Steps:
    """How often each mechanism runs, compositions taken apart."""
    found: Steps = Counter()
    for mechanism, times in parts:
        check.count("steps", times)
        for part, inner in mechanism.parts():
            found[json.dumps(part.spec(), sort_keys=True)] += inner * times
    return found


def head_of(ledger: Ledger) -> dict[str, Any]:
    """What a ledger says besides its entries: standing, assumptions, switches and facts."""
    spec = ledger.copy().spec()
    return {name: spec[name] for name in ("standing", "assumptions", "unsafe", "facts")}


def take_head(ledger: Ledger, head: dict[str, Any]) -> None:
    """Add to `ledger` what the head of another one says."""
    for sentence in head["assumptions"]:
        ledger.assume(sentence)
    ledger.facts.absorb(Facts.from_spec(head["facts"]))
    for switch in head["unsafe"]:
        ledger.mark_unsafe(switch)
    standing = Standing(head["standing"])
    if standing is not Standing.CONDITIONAL or not head["facts"]:  # Facts say conditional themselves.
        ledger._marked = Standing.weakest(ledger._marked, standing)


def _covered(head: dict[str, Any]) -> dict[str, Any]:
    """What a head says but for settings and numbers of steps that may have followed outputs, which a filter covers."""
    chosen = ("settings", "steps")
    kept = [
        fact
        for fact in head["facts"]
        if fact["id"] not in chosen or fact["how"] != "assumed" or set(fact["says"].split("; ")) - _FOLLOWING
    ]
    return head | {"facts": kept}


def _reserve(known: Known, row: Row) -> None:
    body = row.body
    new = Held(row.reservation, body["label"], body["scope"], row.time, row.number)
    found = known.held.setdefault(row.reservation, new)
    found.part = tuple(body["part"]) if "part" in body else None
    added: Steps = Counter()
    for spec in body["mechanisms"]:
        text = json.dumps({key: value for key, value in spec.items() if key != "steps"}, sort_keys=True)
        added[text] += check.count("steps", spec["steps"])
    found.blocks[body["block"]] = found.blocks.get(body["block"], Counter()) + added
    if added:
        known.reserved.append(row.reservation)
    if body["head"]:
        found.heads[body["block"]] = body["head"]


def _take(known: Known, row: Row) -> None:
    """Add an entry that is no declaration."""
    body = row.body
    match row.kind:
        case "reserve":
            _reserve(known, row)
        case "settle":
            held = known.held[row.reservation]
            held.status, held.heads[body["block"]] = SETTLED, body["head"]
        case "abandon":
            known.held[row.reservation].status = ABANDONED
        case "cap":
            known.caps[body["type"]] = target_from_spec(body)
        case "fingerprint":
            known.fingerprints.append(body["digest"])
        case "split":
            known.splits[body["split"]] = body["parts"]
        case "untracked":
            known.untracked.append(body["label"])
        case "audit":
            return
        case kind:
            raise check.fail("registry", "one whose entries this version knows", kind, "Update tacit.")


_BYTES = 8
"""Bytes of a hash: two of 10^6 others collide with probability 5e-8 (n m / 2^64)."""
NOTICED = 0.05
"""Share of common records from which two tables are the same people; less may be coincidence of coarse rows."""


def record_hashes(key: SigningKey, x: Any, y: Any = None) -> np.ndarray:
    """Sorted distinct keyed hashes of the records (x_i, y_i); without the key they tell nothing about a record.

    A record is the bytes of its values as float64, or of its integers as int64; NaN and -0 have one form each. So the
    same values as float32 and as float64 are one record. Keyed BLAKE2b (RFC 7693) of those bytes, 64 bits.

    Args:
        key: the signing key of this user or team.
        x: (n, ...) numbers.
        y: (n, ...) numbers or texts, or None.

    Returns:
        uint64, ascending.

    Raises:
        InvalidInput: x and y differ in length.

    Example:
        >>> key, x = SigningKey(bytes(32)), np.arange(6.0).reshape(3, 2)
        >>> whole, fold = record_hashes(key, x), record_hashes(key, x[1:].astype("float32"))
        >>> len(np.intersect1d(whole, fold))
        2
    """
    return np.unique(_hashes(bytes.fromhex(key.mac("record fingerprint", b"")), x, y))


class Parts:
    """Disjoint parts of records: the part of a record is a keyed hash of that record alone.

    Args:
        key: the signing key of this user or team.
        name: of the division; another name divides otherwise.
        parts: how many, >= 2.

    Example:
        >>> x = np.arange(20.0).reshape(10, 2)
        >>> parts = Parts(SigningKey(bytes(32)), "folds", 2)
        >>> (first, _), (second, _) = parts.of(0, x), parts.of(1, x)
        >>> len(first) + len(second), parts.of(0, x[:5])[0].tolist() == first[first[:, 0] < 10].tolist()
        (10, True)
    """

    def __init__(self, key: SigningKey, name: str, parts: int):
        self._secret = bytes.fromhex(key.mac("record part", name.encode()))
        self.parts = parts

    def of(self, index: int, x: Any, y: Any = None) -> tuple[Any, Any]:
        """The records of part `index` among (x, y); their number is private."""
        check.count("index", index, minimum=0, maximum=self.parts - 1)
        kept = _hashes(self._secret, x, y) % self.parts == index
        return np.asarray(x)[kept], None if y is None else np.asarray(y)[kept]


def _hashes(secret: bytes, x: Any, y: Any) -> np.ndarray:
    """The keyed hash of every record, in their order."""
    columns = [_canonical(part) for part in (x, y) if part is not None]
    lengths = {len(column) for column in columns}
    check.that(len(lengths) == 1, "y", "as long as x", "another length")
    found = [
        hashlib.blake2b(b"\0".join(column[i].tobytes() for column in columns), key=secret, digest_size=_BYTES).digest()
        for i in range(lengths.pop())
    ]
    return np.frombuffer(b"".join(found), dtype="<u8")


def shared(first: np.ndarray, second: np.ndarray) -> float:
    """The share of the smaller table's distinct records that the other one holds too."""
    smaller = min(len(first), len(second))
    return len(np.intersect1d(first, second, assume_unique=True)) / smaller if smaller else 0.0


def _canonical(values: Any) -> np.ndarray:
    """(n, k), rows contiguous: float64 without -0 and with one NaN; of texts a hash of the row."""
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        numbers = array.astype("<f8").reshape(len(array), int(np.prod(array.shape[1:]))) + 0.0  # -0.0 + 0.0 is 0.0
        numbers[np.isnan(numbers)] = np.nan
        return np.ascontiguousarray(numbers)
    rows = array.reshape(len(array), int(np.prod(array.shape[1:])))
    told = [hashlib.blake2b("\0".join(map(str, row)).encode(), digest_size=16).digest() for row in rows]
    return np.asarray(told, dtype="V16").reshape(-1, 1)
