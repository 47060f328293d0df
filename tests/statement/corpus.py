"""Statements of real runs, changed ones, and what both readers say of them.

`python -m tests.statement.corpus` makes them all and prints the table: some four minutes of one core.
"""

from __future__ import annotations

import copy
import json
import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tacit.accounting import Ledger
from tacit.errors import InvalidInput
from tacit.statement import AuthorKey, Subject, check_statement, sealed, statement
from tacit.statement.keys import fingerprint
from tests.statement import second_reader
from tests.statement.real_runs import RUNS, ledger_of

Table = dict[str, Any]
AUDIT = {"attack": "canaries", "confidence": 0.95, "delta": 1e-5, "epsilon_lower": 0.01, "detectable_epsilon": 2.0}
FREE = ("subject", "software")
"""Tables of free text, of which nothing is claimed."""
LOOSENED = ("valid, not tight",)
NOT_VALID = ("contradicted", "not checkable", "refused")
REFUSED = ("refused",)


class Mutant(NamedTuple):
    """A changed statement.

    Attributes:
        kind: of the change.
        content: of the file.
        allowed: words that a reader may give it.
    """

    kind: str
    content: bytes
    allowed: tuple[str, ...]


def statements(names: list[str], key: AuthorKey) -> dict[str, bytes]:
    """Signed statements of the runs called `names`."""
    found = {}
    with tempfile.TemporaryDirectory() as home:
        for place, name in enumerate(names):
            table = statement(Subject("people"), ledger_of(name, Path(home) / str(place)), audits=[AUDIT])
            found[name] = sealed(table, key)
    return found


def mutants(table: Table, key: AuthorKey, chance: random.Random) -> Iterator[Mutant]:
    """Changes of a statement without end, of kinds in turn."""
    kinds = [_unsigned, _leaf, _rows, _leaf, _chained, _evidence, _leaf, _spelled]
    place = chance.randrange(len(kinds))
    while True:
        yield from kinds[place % len(kinds)](table, key, chance)
        place += 1


def words(content: bytes, key: AuthorKey) -> tuple[str, str]:
    """What tacit and the second reader say of a file."""
    wanted = fingerprint(key.public)
    try:
        first = max(finding.verdict for finding in check_statement(content, key=wanted, slow=True)[1]).words
    except InvalidInput:
        first = "refused"
    try:
        second = second_reader.judged(content, wanted)
    except (ValueError, KeyError):  # A fact that the table of the page has not.
        second = "refused"
    return first, second


def agree(first: str, second: str) -> bool:
    """Whether two words are compatible: the second reader may not know a number, and refuse what tacit contradicts."""
    if second == "not checkable here":
        return first != "refused"
    return first == second or {first, second} <= {*NOT_VALID}


def _unsigned(table: Table, key: AuthorKey, chance: random.Random) -> Iterator[Mutant]:
    """Another payload under the old signature."""
    outer = json.loads(sealed(table, key))
    payload = json.loads(second_reader.decoded(outer["payload"]))
    payload["guarantee"]["at"][0]["epsilon"] = round(chance.uniform(0.01, 0.5), 6)
    outer["payload"] = second_reader.base64.b64encode(second_reader.written(payload).encode()).decode()
    yield Mutant("signed by nobody", json.dumps(outer).encode(), NOT_VALID)


def _places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*path, key))
    else:
        yield path


def _at(table: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        table = table[step]
    return table


def _moved(value: Any, chance: random.Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value * chance.choice([0.5, 0.9, 1.1, 2]) + chance.choice([0, 1])
    return chance.choice([value[:-1], value + "x", "zero_out", "user", "proven", "0" * 64])


def _leaf(table: Table, key: AuthorKey, chance: random.Random) -> Iterator[Mutant]:
    """One value of another number, word or digest, signed again."""
    part = chance.choice(["guarantee", "guarantee", "mechanism", "mechanism", "facts", "digests"])
    path = chance.choice([each for each in _places(table) if each[0] == part and each != ("digests", "model")])
    other, value = copy.deepcopy(table), _at(table, path)
    moved = _moved(value, chance)
    if moved == value or (isinstance(moved, float) and math.isclose(moved, value, rel_tol=1e-5)):
        return
    _at(other, path[:-1])[path[-1]] = moved
    bound = path[0] == "guarantee" and path[1] in ("at", "tradeoff")
    yield Mutant(f"one value of {path[0]}", sealed(other, key), NOT_VALID + (LOOSENED if bound else ()))


def _rows(table: Table, key: AuthorKey, chance: random.Random) -> Iterator[Mutant]:
    """A row of the ledger taken away, or there twice."""
    name, other = chance.choice(["facts", "mechanisms"]), copy.deepcopy(table)
    rows = other["mechanism"][name]
    place = chance.randrange(len(rows))
    rows.insert(place, rows[place]) if chance.random() < 0.5 else rows.pop(place)
    yield Mutant(f"rows of {name}", sealed(other, key), NOT_VALID)


def _evidence(table: Table, key: AuthorKey, chance: random.Random) -> Iterator[Mutant]:
    """An attack that found more than is claimed, or a claim of less."""
    other = copy.deepcopy(table)
    if chance.random() < 0.5:
        other["evidence"]["audits"][0] |= {"epsilon_lower": 50.0, "delta": 0.5}
        yield Mutant("an attack that found more", sealed(other, key), NOT_VALID)
        return
    for row in other["guarantee"]["at"]:
        row |= {"epsilon": 0.001, "epsilon_lower": None}
    yield Mutant("a smaller epsilon", sealed(other, key), NOT_VALID)


def _chained(table: Table, key: AuthorKey, chance: random.Random) -> Iterator[Mutant]:
    """A mechanism, relation, unit or sampler of another kind, its chain computed anew and signed by its author."""
    other = copy.deepcopy(table)
    row = chance.choice(other["mechanism"]["mechanisms"])
    changes: list[tuple[dict[str, Any], str, Any]] = [(row, "steps", row["steps"] + 1)]
    if isinstance(row.get("noise_multiplier"), float):
        changes.append((row, "noise_multiplier", row["noise_multiplier"] * 0.8))
    if "sample_rate" in row and row["sample_rate"] < 0.5:
        changes.append((row, "sample_rate", row["sample_rate"] * 1.5))
        changes.append((row, "sampling", "shuffled" if row.get("sampling", "poisson") == "poisson" else "poisson"))
    changes.append((other["mechanism"], "unit", "household"))
    others = [each for each in ("add_remove", "replace_one", "zero_out") if each != other["mechanism"]["relation"]]
    changes.append((other["mechanism"], "relation", chance.choice(others)))
    at, name, value = chance.choice(changes)
    at[name] = value
    if value == "shuffled":
        rate = row.pop("sample_rate")
        row |= {"records": 240, "batch_size": max(1, round(240 * rate))}
    bare = {each: value for each, value in other["mechanism"].items() if each not in ("hash", "facts", "standing")}
    try:
        ledger = Ledger.from_spec(bare | {"mechanisms": [_bare(each) for each in bare["mechanisms"]]})
        for fact in table["mechanism"]["facts"]:
            ledger.facts.note(fact["id"], fact["how"], fact["says"])
        spec = ledger.spec()
    except InvalidInput:
        return
    if name == "relation" and spec["relation"] == table["mechanism"]["relation"]:
        return  # Where places are public, add_remove reads as zero_out.
    other["mechanism"] = spec
    other["digests"]["ledger"] = spec["hash"]
    yield Mutant(f"{name} with a new chain", sealed(other, key), NOT_VALID)


def _bare(row: Table) -> Table:
    return {name: value for name, value in row.items() if name != "hash"}


def _spelled(table: Table, key: AuthorKey, chance: random.Random) -> Iterator[Mutant]:
    """Files that can be read in two ways."""
    content = sealed(table, key)
    outer = json.loads(content)
    body = second_reader.decoded(outer["payload"]).decode()
    spellings = {
        "a key twice": body.replace('"schema":', '"schema":"x","schema":', 1),
        "NaN": body.replace('"sequence":1', '"sequence":NaN', 1),
        "1e400": body.replace('"sequence":1', '"sequence":1e400', 1),
        "another Unicode form": body.replace("people", "e\u0301", 1),
        "a control character": body.replace("people", "\u202ex", 1),
    }
    kind = chance.choice([*spellings, "two envelopes", "two signatures"])
    if kind == "two envelopes":
        yield Mutant(kind, content + content, REFUSED)
    elif kind == "two signatures":
        yield Mutant(kind, json.dumps(outer | {"signatures": outer["signatures"] * 2}).encode(), REFUSED)
    else:
        yield Mutant(kind, _signed_text(spellings[kind], key), REFUSED)


def _signed_text(body: str, key: AuthorKey) -> bytes:
    """An envelope around any text, rightly signed."""
    kind, raw = second_reader.TYPE, body.encode()
    signature = key.sign(f"DSSEv1 {len(kind)} {kind} {len(raw)} ".encode() + raw)
    encoded = [second_reader.base64.b64encode(each).decode() for each in (raw, signature)]
    signed = {"keyid": fingerprint(key.public), "sig": encoded[1]}
    return json.dumps({"payloadType": kind, "payload": encoded[0], "signatures": [signed]}).encode()


def mutants_of(contents: dict[str, bytes], key: AuthorKey, count: int, seed: int = 1) -> Iterator[tuple[str, Mutant]]:
    """`count` changed statements, of every run in turn."""
    chance = random.Random(seed)
    tables = {name: json.loads(second_reader.decoded(json.loads(each)["payload"])) for name, each in contents.items()}
    for table in tables.values():
        del table["author"]
    streams = {name: mutants(table, key, chance) for name, table in tables.items()}
    for number in range(count):
        name = list(streams)[number % len(streams)]
        yield name, next(streams[name])


def main() -> None:
    """Print what both readers say of all files, and every file on which they differ or that has a wrong word."""
    key, told, wrong = AuthorKey.new(), Counter(), []
    contents = statements(list(RUNS), key)
    for name, content in contents.items():
        first, second = words(content, key)
        told["as written", first, second] += 1
        if first != "valid" or not agree(first, second):
            wrong.append((name, "as written", first, second))
    for name, mutant in mutants_of(contents, key, 500):
        first, second = words(mutant.content, key)
        told[mutant.kind, first, second] += 1
        if first not in mutant.allowed or second == "valid" or not agree(first, second):
            wrong.append((name, mutant.kind, first, second))
    print(f"{len(contents)} statements of real runs, 500 changed ones\n")
    print(f"{'change':32} {'tacit':18} {'second reader':20} files")
    for (kind, first, second), count in sorted(told.items()):
        print(f"{kind:32} {first:18} {second:20} {count:5}")
    for row in wrong:
        print("WRONG:", *row)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
