"""`statement`: the table of a privacy statement, from a ledger and what is known of its subject."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import tacit
from tacit import check
from tacit.accounting import Ledger, account
from tacit.serialization import plain_values
from tacit.signing import code_digest, new_id

SCHEMA = "tacit-statement/1"
"""The schema that this version writes; `statement.schema.json` beside this file."""
SHARES = (0.0, 0.0625, 0.125, 0.1875, 0.25, 0.375, 0.5, 0.75)
"""Shares of the first epsilon at which a statement bounds delta too: lines that support the trade-off curve."""
TOLERANCE = 1e-6
"""Relative difference of two numbers that are taken as equal, since processors and versions round apart."""
_LARGEST = 100.0  # epsilon of which shares still say something
_AUDIT = ("attack", "confidence", "delta", "epsilon_lower", "detectable_epsilon")
_FACT = ("id", "how", "says")


@dataclass(frozen=True)
class Subject:
    """What a statement is about; never a path or a record.

    Attributes:
        dataset: name of the data set.
        owner: who answers for it.
        contact: how to reach them.
        purpose: what the model is for.
        date: of the release, as YYYY-MM-DD; today by default.
        id: of the subject, the same in every later statement about it; a new one by default.
        sequence: number of the statement about this subject, from 1.

    Example:
        >>> Subject("digits", owner="Statistics office").sequence
        1
    """

    dataset: str
    owner: str = ""
    contact: str = ""
    purpose: str = ""
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    id: str = field(default_factory=new_id)
    sequence: int = 1

    def __post_init__(self) -> None:
        check.text("dataset", self.dataset)
        check.count("sequence", self.sequence)
        try:
            datetime.date.fromisoformat(self.date)
        except ValueError:
            raise check.fail("date", "a date as YYYY-MM-DD", self.date) from None


def statement(
    subject: Subject,
    ledger: Ledger,
    *,
    deltas: Sequence[float] = (1e-5,),
    audits: Sequence[Mapping[str, Any]] = (),
    checked: Mapping[str, Any] | None = None,
    model: str = "",
) -> dict[str, Any]:
    """The payload of a statement: every number follows from the ledger in it, so that anybody can compute it again.

    Args:
        subject: what it is about.
        ledger: what ran.
        deltas: each in (0, 1): epsilon is bounded there.
        audits: rows of attacks on the model, as a card has them.
        checked: what ball arithmetic says of a bracket, as `check_bracket` gives it; None where it was not asked.
        model: SHA-256 of the model's file; empty where there is none.

    Raises:
        Refused: no accountant answers for this ledger.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> table = statement(Subject("digits"), Ledger.of(Gaussian(4.0)))
        >>> round(table["guarantee"]["at"][0]["epsilon"], 3)
        0.926
    """
    spec = mechanism_table(ledger)
    ledger = Ledger.from_spec(spec)
    table = {
        "schema": SCHEMA,
        "subject": asdict(subject),
        "mechanism": spec,
        "guarantee": guarantee(ledger, deltas),
        "facts": [{name: fact[name] for name in _FACT} for fact in spec["facts"]],
        "evidence": {
            "audits": [{name: row.get(name) for name in _AUDIT} for row in audits],
            "checked": None if checked is None else dict(checked),
        },
        "software": software(),
        "digests": {"ledger": spec.get("hash"), "model": model or None},
    }
    return plain_values(table)


def mechanism_table(ledger: Ledger) -> dict[str, Any]:
    """The SPEC of a ledger; hashes are those of a run, whose facts and entries they chain."""
    spec = plain_values({name: value for name, value in ledger.spec().items() if name != "signature"})
    if ledger.is_run:
        return spec
    rows = [{name: value for name, value in row.items() if name != "hash"} for row in spec["mechanisms"]]
    return {name: value for name, value in spec.items() if name != "hash"} | {"mechanisms": rows}


def guarantee(ledger: Ledger, deltas: Sequence[float], stated: Sequence[float] = ()) -> dict[str, Any]:
    """The numbers of a ledger: epsilon with its proven lower end at each delta, and delta at further epsilons.

    Args:
        ledger: what ran.
        deltas: each in (0, 1).
        stated: further epsilons of the statement that is checked, which may round apart from `SHARES` of the first.
    """
    rows, curve = [], None
    for delta in deltas:
        check.probability("delta", delta)
        # The exact accountant where it gives a number; the best of all elsewhere.
        exact = account(ledger, delta=delta, accountants=["pld"]).results
        best = exact if exact and math.isfinite(exact[0].epsilon) else account(ledger, delta=delta).results
        if not best:
            raise check.fail("ledger", "one that an accountant answers for", str(ledger.mechanism))
        found = min(best, key=lambda result: result.epsilon)
        curve = curve or found.tradeoff
        rows.append({"delta": delta, "epsilon": found.epsilon, "epsilon_lower": found.epsilon_lower})
    assert curve is not None
    first = rows[0]["epsilon"] if rows[0]["epsilon"] < _LARGEST else 1.0
    places = [share * first for share in SHARES]
    places = [near if close(near, own) else own for near, own in zip(stated or places, places, strict=True)]
    return {
        "relation": ledger.relation.value,
        "unit": ledger.unit,
        "scope": ledger.scope,
        "standing": curve.standing.value,
        "accountant": curve.source,
        "at": rows,
        "tradeoff": [{"epsilon": place, "delta": float(curve.delta(place))} for place in places],
    }


def close(first: float, second: float) -> bool:
    """Whether two numbers are taken as equal."""
    return first == second or abs(first - second) <= TOLERANCE * max(abs(first), abs(second))


def software() -> dict[str, str]:
    """Versions of what computed, and the digest of this package's source."""
    found = {"tacit": tacit.__version__, "python": platform.python_version(), "package": package_digest()}
    for name in ("numpy", "scipy", "torch"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def package_digest() -> str:
    """SHA-256 over the source files of this package in order of their names."""
    root = Path(tacit.__file__).parent
    return code_digest(sorted(root.rglob("*.py")))
