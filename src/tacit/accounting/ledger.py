"""`Ledger`: the append-only record of the mechanisms that ran."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from tacit import check
from tacit.accounting.adaptivity import FIXED, LATER, OUTSIDE, SCOPES, Choices, scope_of
from tacit.accounting.facts import PUBLIC, UNSTATED, Entry, Fact, Facts, unpaid
from tacit.errors import InvalidInput
from tacit.mechanisms import Compose, Mechanism, from_spec
from tacit.mechanisms.spec import mechanism_rows, read_spec
from tacit.relation import Relation
from tacit.serialization import write_text
from tacit.signing import Origin, origin_of, signature_of
from tacit.standing import Standing

PUBLIC_SIZE = "Each record belongs to one unit, and the number of training records is public."
"""The assumption behind sampling rates and divisors, for `Ledger.assume`."""
DECLARED_SIZE = "Each record belongs to one unit, and the declared number of records is public."
"""The same where settings follow a declared number in place of the true one."""
PLACES = "Settings follow the number of records, which is public: a removed record leaves a blank one (zero_out)."
"""The assumption that makes zero_out of add_remove: neighbours of other numbers would have other settings."""
_KEYS = ("relation", "unit", "assumptions", "unsafe", "standing", "facts", "mechanisms", "hash", "signature")
_KIND = "ledger"
_STANDINGS = [standing.value for standing in Standing if standing is not Standing.MEASURED]
_DETACHED = (
    "a ledger cannot be pickled or deep-copied: what its copy records, in another process say, never reaches it. Run "
    "in one process (n_jobs=1) with the ledger itself, or send ledger.spec() and absorb what comes back; ledger.copy() "
    "makes an independent one for planning."
)


class Ledger(Choices):
    """The mechanisms that ran, their relation, assumptions and facts; the JSON form is a SPEC for `tacit account`.

    Consecutive runs of the same mechanism with the same note grow one entry. Facts and entries are chained by SHA-256
    and the end of the chain is kept beside them, so a ledger that was edited by mistake or cut short does not load. The
    chain has no key: it is no defence against somebody who computes it anew.

    The file of a run is signed with this user's key; `origin` says what the signature of a loaded file tells. A ledger
    that was not made by this process, nor loaded with a valid signature, is saved without one.

    A ledger cannot be pickled or deep-copied, as entries of a copy would never reach the original; `copy` makes an
    independent one. `add` may be called from several threads.

    Args:
        relation: neighbouring relation that the sensitivities were enforced for.
        unit: the privacy unit ("record", "user", ...).
        scope: "fixed" declares that no setting of a run follows the output of an earlier one.

    Raises:
        InvalidInput: the relation or scope is unknown, or the unit is no text.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> ledger = Ledger(relation="replace_one")
        >>> ledger.add(Gaussian(1.0), steps=2, note="training")
        >>> ledger.add(Gaussian(1.0), steps=3, note="training")
        >>> [(entry.steps, entry.note) for entry in ledger.entries]
        [(5, 'training')]
        >>> Ledger.from_spec(ledger.spec()).hash == ledger.hash
        True
    """

    def __init__(
        self, *, relation: Relation | str = Relation.ADD_REMOVE, unit: str = "record", scope: str | None = None
    ):
        self._enforced = Relation.parse(relation)
        self.unit = check.text("unit", unit)
        self._assumed: list[str] = []
        self.unsafe: list[str] = []
        self.facts = Facts()
        self.origin = Origin.OWN
        self._marked = Standing.PROVEN
        self._unstated = False
        self._closed = False
        self._process = os.getpid()
        self._entries: list[Entry] = []
        Choices.__init__(self)
        self.advances = 0  # Checkpoints of the same run that were read.
        self._lock = threading.RLock()
        # Which records form a unit is private, so only a hash under a key that is written nowhere is kept.
        self._key, self._grouping = os.urandom(16), ""
        if scope is not None:
            check.choice("scope", scope, SCOPES)
            self.assume(FIXED)

    @classmethod
    def of(cls, mechanism: Mechanism, *, relation: Relation | str = Relation.ADD_REMOVE) -> Ledger:
        """A ledger in which `mechanism` ran once."""
        ledger = cls(relation=relation)
        for part, steps in mechanism.parts():
            ledger.add(part, steps)
        return ledger

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(type(each.mechanism).__name__ for each in self._entries)) or "nothing"
        return f"Ledger({self.relation.value}, {self.unit}, {self.standing.value}: {kinds} in {self.steps} steps)"

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every entry, oldest first."""
        return tuple(self._entries)

    @property
    def relation(self) -> Relation:
        """The relation that everything here holds for: zero_out in place of add_remove where `PLACES` is assumed."""
        zeroed = self._enforced is Relation.ADD_REMOVE and PLACES in self._assumed
        return Relation.ZERO_OUT if zeroed else self._enforced

    @property
    def mechanism(self) -> Compose:
        """The composition of everything that ran, and of `not_taken`: what the accountants read."""
        self._warn_of_rest()
        return Compose.of(*((entry.mechanism, entry.steps) for entry in (*self._entries, *self.not_taken)))

    @property
    def standing(self) -> Standing:
        """The weakest of what was marked and of the facts; `conditional` for a stored run that states no facts."""
        known = Standing.CONDITIONAL if self._unstated else Standing.PROVEN
        return Standing.weakest(self._told, known)

    @property
    def scope(self) -> str:
        """What may have followed earlier outputs: "fixed", "menu", "filter(...)", or several of them."""
        return scope_of(self.entries)

    @property
    def is_run(self) -> bool:
        """Whether this is the record of a run, with facts; otherwise it is a statement about mechanisms."""
        return len(self.facts) > 0

    @property
    def steps(self) -> int:
        """Number of mechanisms that ran."""
        return sum(entry.steps for entry in self._entries)

    @property
    def free_series(self) -> int:
        """The lowest number above those of all series of disjoint batches that are recorded."""
        return max((entry.mechanism.series_taken() for entry in self._entries), default=0)

    @property
    def hash(self) -> str:
        """SHA-256 of the whole chain; two ledgers with the same hash record the same run."""
        return self._chain()[-1]

    def __sklearn_clone__(self) -> Ledger:
        """Itself: clones of an estimator spend from the ledger that it was given."""
        return self

    def add(self, mechanism: Mechanism, steps: int = 1, note: str = "") -> None:
        """Record that `mechanism` ran `steps` >= 1 times."""
        check.instance("mechanism", mechanism, Mechanism, "one such as Gaussian(1.0)")
        steps = check.count("steps", steps)
        self._check_open()
        with self._lock:
            if self._is_paid_for(mechanism, steps):
                return
            if self._covers:
                self.chosen_after_outputs(OUTSIDE)
            self._grow(self._entries, Entry(mechanism, steps, note))

    def _grow(self, entries: list[Entry], new: Entry) -> None:
        """Append an entry, or add its steps to the last one of the same mechanism and note."""
        last = entries[-1] if entries else None
        if last is not None and (last.mechanism, last.note) == (new.mechanism, new.note):
            entries[-1] = replace(last, steps=last.steps + new.steps)
        else:
            entries.append(new)
        for switch in new.mechanism.unsafe:
            self.mark_unsafe(switch)

    def check_grouping(self, grouping: Callable[[bytes], str]) -> None:
        """Check that records form the same units as in the runs before.

        Args:
            grouping: key -> keyed hash of which records form a unit, "records:hash"; empty where each is its own.

        Raises:
            InvalidInput: as many records were grouped otherwise before: a unit would be charged for parts of others.
        """
        found = grouping(self._key)
        if self._grouping and found.partition(":")[0] == self._grouping.partition(":")[0] and found != self._grouping:
            rule = "those of the earlier runs in this ledger"
            raise check.fail("groups", rule, "others", "Give runs of other units a ledger of their own.")
        self._grouping = self._grouping or found

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInput("ledger must be open; got a closed copy, whose entries would reach nobody. Fit again.")
        if self._process != os.getpid():
            raise InvalidInput(
                "ledger must be written in the process that made it; this one was forked, so that what it records "
                "would reach nobody. Give each process a Ledger of its own and absorb() it, or start processes "
                "by spawn with the ledger of a registry."
            )

    def close(self) -> None:
        """Let nothing be recorded here any more: what a copy in another process records reaches nobody."""
        self._closed = True

    def begin(self, *facts: Fact, goes_on: bool = False) -> None:
        """Begin a run whose `facts` are known at its start; those of runs before it are closed.

        It learns more by `facts.note` and the like. A run after another one, outside of `planned`, is conditional on
        settings that did not follow the outputs before. One that `goes_on` with another takes over what that planned.
        """
        if self._unstated:
            self.assume(UNSTATED)
        if not goes_on:
            self._charge_not_taken()
        self.facts.begin()
        for fact in facts:
            self.facts.note(fact.id, fact.how, fact.says)
        if self._follows_another:
            self.may_follow_outputs(LATER)

    def assume(self, sentence: str) -> None:
        """Add an assumption of the guarantee that the code cannot check."""
        with self._lock:
            if check.text("sentence", sentence) not in self._assumed:
                self._assumed.append(sentence)

    def take_as_public(self, what: str) -> None:
        """Name an input of the run that nothing here checks, for card and statement."""
        self.assume(f"{PUBLIC}{what}.")

    @property
    def assumptions(self) -> list[str]:
        """What the code cannot check: what was assumed, and the ends of loops that have left out planned steps."""
        ends = dict.fromkeys(f"{PUBLIC}{run.public_end}." for run in self._open if run.public_end)
        return [*self._assumed, *(each for each in ends if each not in self._assumed)]

    def mark_unsafe(self, switch: str, standing: Standing = Standing.PROVEN) -> None:
        """Record an `unsafe_` switch, and the best standing that remains possible."""
        with self._lock:
            if check.text("switch", switch) not in self.unsafe:
                self.unsafe.append(switch)
            self._marked = Standing.weakest(self._marked, standing)

    def leave_places(self) -> None:
        """State zero_out in place of add_remove, because settings of a run tell the number of records."""
        if self.relation is Relation.ADD_REMOVE:
            self.assume(PLACES)

    def read_from_data(self, what: str) -> None:
        """Record a statistic read from private data without a privacy cost: every number is at most claimed."""
        self.assume(unpaid(what))
        self.mark_unsafe(f"read_from_data: {what}", Standing.CLAIMED)

    def copy(self) -> Ledger:
        """An independent ledger that says the same; what either records later does not reach the other."""
        copied = self.resumable()
        copied._entries += self.not_taken
        copied._assumed = self.assumptions
        return copied

    def resumable(self) -> Ledger:
        """A copy without `not_taken`, for the checkpoint of a run that goes on, or to plan the rest of one."""
        copied = Ledger(relation=self.relation, unit=self.unit)
        with self._lock:
            copied._entries, copied.facts, copied.origin = list(self._entries), self.facts.copy(), self.origin
            copied._covers = [cover.copy() for cover in self._covers]
            copied._take_marks(self)
        return copied

    def absorb(self, other: Ledger, note: str = "") -> None:
        """Record what ran under `other` on the same records: entries, marks, assumptions, facts and standing.

        `note` is the reason of its entries that have none. `other` is left as it is.

        Raises:
            InvalidInput: relation or unit differ, or it is this very ledger.
        """
        if other is self or not self._joins(other):
            rule = f"another ledger for {self.relation.value} and the unit {self.unit!r}"
            got = "this very ledger" if other is self else f"one for {other.relation.value}, {other.unit!r}"
            raise InvalidInput(f"other must be {rule}; got {got}. Record both runs in one ledger from the start.")
        later = self._follows_another and bool(other.entries) and other.is_run
        with self._lock:
            for entry in (*other.entries, *other.not_taken):
                self.add(entry.mechanism, entry.steps, entry.note or note)
            self.absorb_marks(other)
            for sentence in other.assumptions:
                self.assume(sentence)
            if later:
                self.may_follow_outputs(LATER)

    def absorb_marks(self, other: Ledger) -> None:
        """Take in marks, assumptions, facts and standing of `other`, whose cost is recorded here already."""
        with self._lock:
            self.facts.absorb(other.facts)
            self._take_marks(other)
            if self._unstated and self.is_run:
                self.assume(UNSTATED)

    def advance(self, later: Ledger) -> None:
        """Become `later`, which must begin with everything in this ledger; raises `InvalidInput` otherwise."""
        if not self._joins(later) or not self._begins(later):
            raise InvalidInput(
                f"ledger must be one that the later ledger of {later.steps} steps begins with; got {self.steps} steps "
                "that it does not hold. Start from a new Ledger()."
            )
        with self._lock:
            self._entries = list(later._entries)
            self._go_on(later)
            self.advances += 1
            self.facts.advance(later.facts)
            self._take_marks(later)

    def _joins(self, other: Ledger) -> bool:
        """Whether one relation, this ledger's or that of `other`, holds for both, and the unit is the same."""
        mine, theirs = self.relation, other.relation
        return self.unit == other.unit and (mine.covers(theirs) or theirs.covers(mine))

    def _take_marks(self, other: Ledger) -> None:
        if other.relation is Relation.ZERO_OUT:
            self.leave_places()
        for sentence in other._assumed:
            self.assume(sentence)
        for switch in other.unsafe:
            self.mark_unsafe(switch)
        self._marked = Standing.weakest(self._marked, other._marked)
        self._unstated = self._unstated or other._unstated
        if other.origin is not Origin.OWN:
            self.origin = other.origin

    def _begins(self, later: Ledger) -> bool:
        mine, theirs = self._entries, later._entries[: len(self._entries)]
        if not mine or len(theirs) < len(mine):
            return not mine
        grown = replace(theirs[-1], steps=mine[-1].steps)
        return [*theirs[:-1], grown] == mine and theirs[-1].steps >= mine[-1].steps

    def spec(self) -> dict[str, Any]:
        """JSON form: a SPEC with a note and a chain hash on every mechanism, and the hash of the whole."""
        with self._lock:
            facts, rows, chain = self.facts.spec(), self._rows(), self._chain()
            links = chain[1 + len(facts) :]
            chained = [row | {"hash": link} for row, link in zip(rows, links, strict=True)]
            return self._head() | {"facts": facts, "mechanisms": chained, "hash": chain[-1]}

    @property
    def is_evidence(self) -> bool:
        """Whether this is the record of a run that this process or this user's key vouches for."""
        return self.is_run and self.origin is Origin.OWN

    def save(self, path: str | Path) -> None:
        """Write the JSON form atomically, signed unless it came from a file that this user's key does not vouch for."""
        self._warn_of_rest()
        spec = self.spec()
        signature = signature_of(_KIND, spec) if self.origin is Origin.OWN else None
        write_text(path, json.dumps(spec | ({"signature": signature} if signature else {}), indent=1))

    @classmethod
    def load(cls, path: str | Path) -> Ledger:
        """Read a ledger or any other SPEC; raises `InvalidInput` when it is not one or its chain is broken."""
        return cls.from_file(read_spec(path))

    @classmethod
    def from_file(cls, spec: dict[str, Any]) -> Ledger:
        """The ledger of the SPEC table that a file holds: without a signature, nobody vouches for it."""
        ledger = cls.from_spec(spec)
        if "signature" not in spec:
            ledger.origin = Origin.UNSIGNED
        return ledger

    @classmethod
    def from_spec(cls, spec: object) -> Ledger:
        """The ledger of a SPEC table (design: `{"relation": ..., "mechanisms": [...]}`)."""
        if not isinstance(spec, dict):
            raise check.fail("SPEC", 'a table with "relation" and "mechanisms"', spec)
        check.keys("SPEC", spec, _KEYS)
        ledger = cls(relation=spec.get("relation", Relation.ADD_REMOVE), unit=spec.get("unit", "record"))
        ledger._assumed = check.texts("assumptions", spec.get("assumptions", []))
        ledger.unsafe = check.texts("unsafe", spec.get("unsafe", []))
        ledger._marked = Standing(check.choice("standing", spec.get("standing", "proven"), _STANDINGS))
        ledger.facts = Facts.from_spec(spec.get("facts", []))
        if "signature" in spec:
            unsigned = {key: value for key, value in spec.items() if key != "signature"}
            ledger.origin = origin_of(_KIND, unsigned, spec["signature"])
        if ledger._marked is Standing.CONDITIONAL and (ledger.facts.assumed or UNSTATED in ledger._assumed):
            ledger._marked = Standing.PROVEN  # Facts and assumptions say so themselves.
        rows = mechanism_rows(spec)
        for row in rows:
            mechanism, steps = from_spec(row)
            note = check.instance("note", row.get("note", ""), str, "a text")
            for part, inner in mechanism.parts():
                ledger._entries.append(Entry(part, inner * steps, note))
        hashes = [row.get("hash") for row in rows] + [spec.get("hash")]
        if any(hashes) or ledger.is_run:
            ledger._check_chain(hashes)
            ledger._unstated = bool(rows) and not ledger.is_run
        for switch in {switch for entry in ledger.entries for switch in entry.mechanism.unsafe}:
            ledger.mark_unsafe(switch)
        return ledger

    def _check_chain(self, hashes: list[object]) -> None:
        """Every mechanism has its link, and the end of the chain stands beside them."""
        chain = self._chain()
        if hashes != [*chain[1 + len(self.facts) :], chain[-1]]:
            raise InvalidInput(
                "hash must be that of the chain of facts and entries, on every mechanism and at the end; got another "
                "or none. The ledger was edited: use the original, or a SPEC without any hash and without facts."
            )

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:  # Copies ask it, too.
        raise TypeError(_DETACHED)

    @property
    def _told(self) -> Standing:
        """The standing that the JSON form states."""
        earlier = Standing.CONDITIONAL if UNSTATED in self._assumed else Standing.PROVEN
        return Standing.weakest(self._marked, self.facts.standing, earlier)

    def _head(self) -> dict[str, Any]:
        lists = {"assumptions": self.assumptions, "unsafe": self.unsafe}
        return {"relation": self.relation.value, "unit": self.unit} | lists | {"standing": self._told.value}

    def _rows(self) -> list[dict[str, Any]]:
        rows = (*self._entries, *self.not_taken)
        return [entry.mechanism.spec() | {"steps": entry.steps, "note": entry.note} for entry in rows]

    def _chain(self) -> list[str]:
        rows = (*self.facts.spec(), *self._rows())
        return list(accumulate(rows, lambda link, row: _digest([link, row]), initial=_digest(self._head())))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(_numbers(value), sort_keys=True).encode()).hexdigest()


def _numbers(value: object) -> object:
    """`value` with whole numbers as integers, since canonical JSON (RFC 8785) does not tell 4.0 from 4."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
