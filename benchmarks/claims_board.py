"""The claims board: published claims recomputed by two inversions, as a page and a JSON feed.

`python -m benchmarks.claims_board` reads docs/claims/files and writes docs/claims/index.md and docs/claims/feed.json.
A file is a SPEC with tables `claim` and `source`, as `tacit verify` reads it, or a signed statement. A claim is
contradicted only where the accountant's lower end lies above it and a second computation, which shares no code with
the accountant, confirms that end.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.accounting.claims import Claim, Examined, claims_of, examine, shuffled_lower
from tacit.judge import check_bracket
from tacit.mechanisms import Shuffled
from tacit.serialization import json_text, write_text
from tacit.standing import downward, upward
from tacit.statement import check_statement

HOME = Path(__file__).parents[1] / "docs" / "claims"
CONTRADICTED = "contradicted"
SUMMED = "same bound, summed anew"
_SAME = 1e-6
_TIGHT = 0.02  # Relative: a claim within it of the least epsilon is tight; printed ones have two or three digits.
_HEAD = """# Published claims, recomputed

Each row states what somebody published, the mechanism that it is about, and the epsilon that is proven to leak and
proven to be enough for that mechanism. "valid" says that the claim holds for the mechanism as stated, "not tight"
that less than the claim is proven: a larger epsilon than needed is no mistake. "contradicted" says that more than the
claim is proven to leak, by two computations that share no code; "exceeded by one bound" that there is one such bound,
and no second derivation of it. Nothing here shows what any program did, and a contradicted number says nothing about
the rest of a work: "assumes" states what makes the claim true. "Poisson" there says that each step takes every record
independently with the stated probability, and that one record is added or removed.

"""
_POISSON = (
    "Each step takes every record independently with the stated probability (Poisson sampling), "
    "and one record is added or removed."
)
_TAIL = """
## The numbers behind a row

`tacit verify FILE` recomputes a row: its file is in `docs/claims/files`, named as its first cell. The second
computation is `tacit.judge` (ball arithmetic; `confirmed` on the bracket); for shuffled batches in a secret order, for
which it has no rule, the bound of Chua et al. (2024) is summed anew in ball arithmetic, which checks the sum alone.
`python -m benchmarks.claims_board` writes this page and [feed.json](feed.json) again.

## Add a claim

Open a pull request with one file in `docs/claims/files`: a SPEC with the table `claim` (as in [claims of
others](../claims.md)) and a table `source` with `work`, `place` (page or line), `url`, `says` (the claim in its own
numbers) and `assumes` (what makes it true); or a [privacy statement](../statement.md) that you signed. Run the
command above and commit what it wrote: a test computes every row again. Authors who read their work here otherwise
than they meant it: open an issue, and the wording changes first.
"""


def rows(home: Path = HOME, *, known: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Every claim of the folder, recomputed, in order of the names of its files.

    Args:
        home: with the folder `files`.
        known: name -> what the second computation said before; it runs again for contradicted claims and unknown ones.
    """
    return [_row(path, known or {}) for path in sorted((home / "files").glob("*.json"))]


def confirmed(claim: Claim, found: Examined) -> str:
    """What a second computation says of the numbers of `found`."""
    shuffled = [(part, steps) for part, steps in _drawn(claim) if isinstance(part, Shuffled)]
    if shuffled:
        return SUMMED if all(_summed_anew(*each, claim, found.lower or 0.0) for each in shuffled) else "undecided"
    bracket = found.lower or 0.0, found.upper
    return check_bracket(claim.ledger.mechanism, claim.delta, *bracket, relation=claim.ledger.relation).verdict.value


def page(table: list[dict[str, Any]]) -> str:
    """The board as Markdown."""
    lines = ["| claim | published in | claimed | proven to leak | proven to be enough | verdict | second | assumes |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for row in table:
        source = row["source"]
        place = f"[{source['work']}]({source['url']}), {source['place']}: {source['says']}"
        numbers = f"{row['epsilon']:g} at {row['delta']:g} | {row['proven_lower']} | {row['proven_upper']}"
        verdict = f"**{row['verdict']}**" if row["verdict"] == CONTRADICTED else row["verdict"]
        assumes = " ".join([source["assumes"].replace(_POISSON, "Poisson."), *row["remarks"]])
        lines.append(f"| {row['name']} | {place} | {numbers} | {verdict} | {row['second']} | {assumes} |")
    return _HEAD + "\n".join(lines) + "\n" + _TAIL


def _row(path: Path, known: Mapping[str, str]) -> dict[str, Any]:
    table = json.loads(path.read_text(encoding="utf-8"))
    if "payloadType" in table:
        return _of_statement(path)
    (claim,) = claims_of(path)
    found = examine(claim)
    second = known[path.stem] if path.stem in known and not found.refutations else confirmed(claim, found)
    verdict = _verdict(claim, found, second)
    return {
        "name": path.stem,
        "source": table["source"],
        "relation": claim.ledger.relation.value,
        "mechanisms": table["mechanisms"],
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "proven_lower": downward(found.lower, 5),
        "proven_upper": upward(found.upper, 5),
        "by": found.by,
        "verdict": verdict,
        "second": second,
        "remarks": list(found.objections) if verdict.startswith("valid") else [],
        "command": f"tacit verify docs/claims/files/{path.name}",
    }


def _verdict(claim: Claim, found: Examined, second: str) -> str:
    if found.refutations and second == "confirmed":
        return CONTRADICTED
    if found.refutations and second == SUMMED:
        return "exceeded by one bound"
    if claim.epsilon < found.upper * (1 - _SAME):
        return "not proven here"
    return "valid" if claim.epsilon <= found.upper * (1 + _TIGHT) else "valid, not tight"


def _of_statement(path: Path) -> dict[str, Any]:
    payload, findings = check_statement(path.read_bytes(), slow=True)
    first, subject = payload["guarantee"]["at"][0], payload["subject"]
    told = [each for each in findings if each.field != "author"]
    return {
        "name": path.stem,
        "source": {
            "work": subject["dataset"],
            "place": f"statement {subject['sequence']} of {subject['owner'] or 'its author'}",
            "url": f"files/{path.name}",
            "says": subject["purpose"],
            "assumes": "What the statement declares.",
        },
        "relation": payload["guarantee"]["relation"],
        "mechanisms": payload["mechanism"]["mechanisms"],
        "epsilon": first["epsilon"],
        "delta": first["delta"],
        "proven_lower": downward(first["epsilon_lower"], 5),
        "proven_upper": upward(first["epsilon"], 5),
        "by": payload["guarantee"]["accountant"],
        "verdict": max(each.verdict for each in told).words,
        "second": "signed",
        "remarks": [each.says for each in told if each.verdict],
        "command": f"tacit check docs/claims/files/{path.name}",
    }


def _drawn(claim: Claim) -> list[tuple[Any, int]]:
    """The mechanisms with batches drawn as the claim says."""
    if claim.sampling != "shuffled":
        return list(claim.ledger.mechanism.steps)
    assert claim.records is not None
    sizes = [(part, steps, round(claim.records * part.sample_rate)) for part, steps in claim.ledger.mechanism.steps]
    return [(Shuffled(part.base, claim.records, size), steps) for part, steps, size in sizes]


def _summed_anew(part: Shuffled, steps: int, claim: Claim, lower: float) -> bool:
    """Whether ball arithmetic shows the bound of `shuffled_lower` at some threshold, up to 1e-4."""
    from flint import arb, ctx

    if shuffled_lower(part, steps, claim.ledger.relation, claim.delta) < lower:
        return False
    ctx.prec, batches = 120, min(steps, part.records // part.batch_size)
    noise = arb(part.base.noise_multiplier)
    below = lambda x: (1 + (x / noise / arb(2).sqrt()).erf()) / 2  # noqa: E731
    other = 0 if claim.ledger.relation.value == "replace_one" else 1
    for number in range(1, 2000):
        c = arb(number) / 100
        rest = below(c) ** (batches - 1)
        ratio = (1 - below(c - 2) * rest - arb(claim.delta)) / (1 - below(c - other) * rest)
        if ratio > 0 and ratio.log() > lower - 1e-4:
            return True
    return False


def main() -> None:
    """Write the page and the feed."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    table = rows()
    assert all(math.isfinite(row["epsilon"]) for row in table)
    write_text(HOME / "index.md", page(table))
    write_text(HOME / "feed.json", json_text({"claims": table}) + "\n")
    for row in table:
        numbers = f"{row['epsilon']:>6g}  [{row['proven_lower']}, {row['proven_upper']}]"
        print(f"{row['name']:38} {numbers:28} {row['verdict']:18} {row['second']}")


if __name__ == "__main__":
    main()
