"""Claims of others: a stated epsilon recomputed from its mechanisms, and what is wrong with it in words."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from tacit import check
from tacit.accounting.ledger import Ledger
from tacit.accounting.registry import ACCOUNTANTS, account, accountant
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Compose, FixedSize, Gaussian, Shuffled
from tacit.mechanisms.spec import mechanism_rows
from tacit.relation import Relation
from tacit.serialization import json_table
from tacit.standing import Standing, downward, upward
from tacit.tradeoff import Curve, TradeOff

_KEYS = ("epsilon", "delta", "accountant", "standing", "relation", "sampling", "records", "runs")
_SAMPLINGS = ("poisson", "fixed_size", "shuffled")
_TAIL = 1e-9  # probabilities below it are differences of doubles near 1, whose rounding would count
_DIGIT = 1e-6  # relative: half a unit of the sixth digit, which a printed number may be off by
_SAME = 0.01  # relative: published epsilons are rounded to two or three digits


class Verdict(StrEnum):
    """What a recomputation says of a claim, the worst first.

    refuted: more than the claimed epsilon is proven to leak.
    unsupported: no accountant here proves the claim, or what it leaves out makes it say little.
    consistent: an accountant proves the claim, and nothing else was found wrong with it.
    """

    REFUTED = "refuted"
    UNSUPPORTED = "unsupported"
    CONSISTENT = "consistent"


class StatedCurve(Curve):
    """The curve that (epsilon, delta) alone says: d(e) = delta + (1 - delta) max(0, e^epsilon - e^e) / (1 + e^epsilon).

    Its trade-off function is max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)) (Kairouz, Oh &
    Viswanath 2015, Theorem 3.3).

    Args:
        epsilon: >= 0.
        delta: in [0, 1].
    """

    def __init__(self, epsilon: float, delta: float):
        self._epsilon, self._delta = check.epsilon(epsilon), check.delta(delta)

    def delta(self, epsilon: float) -> float:
        """The delta at epsilon >= 0, non-increasing."""
        share = max(0.0, -math.expm1(epsilon - self._epsilon)) / (1 + math.exp(-self._epsilon))
        return self._delta + (1 - self._delta) * share

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 with delta(epsilon) <= delta; inf when there is none."""
        if delta < self._delta:
            return math.inf
        if self._delta == 1.0:
            return 0.0
        left = 1 - (delta - self._delta) / (1 - self._delta) * (1 + math.exp(-self._epsilon))
        return max(0.0, self._epsilon + math.log(left)) if left > 0 else 0.0


class _JointCurve(Curve):
    """What several curves claim of one mechanism: the smallest delta, and the largest type II error, of any."""

    def __init__(self, curves: Sequence[Curve]):
        self._curves = curves

    def delta(self, epsilon: float) -> float:
        return min(curve.delta(epsilon) for curve in self._curves)

    def epsilon(self, delta: float) -> float:
        return min(curve.epsilon(delta) for curve in self._curves)

    def beta(self, alpha: np.ndarray) -> np.ndarray:
        return np.maximum.reduce([curve.beta(alpha) for curve in self._curves])

    @cached_property
    def profile(self) -> tuple[np.ndarray, np.ndarray]:
        """(epsilons, deltas) of each curve on its own grid, delta not increasing; a curve has its own way to many."""
        epsilons, deltas = (
            np.concatenate(sides) for sides in zip(*(each.profile for each in self._curves), strict=True)
        )
        order = np.argsort(epsilons)
        return epsilons[order], np.minimum.accumulate(deltas[order])


@dataclass(frozen=True)
class Claim:
    """A stated epsilon at delta, and what it was stated about.

    Attributes:
        ledger: the mechanisms that ran, under the relation that the claim names.
        epsilon: the stated epsilon, >= 0.
        delta: in [0, 1].
        accountant: by which it was computed; empty where that is not stated.
        standing: as which it is stated ("proven" reads as a bound); empty where that is not stated.
        sampling: how batches were drawn in truth, where the mechanisms were accounted otherwise.
        records: n, for the rule that delta is below 1/n; None where it is not stated.
        runs: how many runs the released one is the best of.

    Raises:
        InvalidInput: a number or name breaks its rule.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> claim = Claim(Ledger.of(Gaussian(1.1).poisson(0.01) * 100), epsilon=0.1, delta=1e-5)
        >>> examine(claim).verdict.value
        'refuted'
    """

    ledger: Ledger
    epsilon: float
    delta: float
    accountant: str = ""
    standing: str = ""
    sampling: str = ""
    records: int | None = None
    runs: int = 1

    def __post_init__(self) -> None:
        check.epsilon(self.epsilon)
        check.delta(self.delta)
        check.count("runs", self.runs)
        if self.records is not None:
            check.count("records", self.records)
        if self.accountant:
            check.choice("accountant", self.accountant, ACCOUNTANTS)
        if self.standing:
            check.choice("standing", self.standing, [each.value for each in Standing])
        if self.sampling:
            check.choice("sampling", self.sampling, _SAMPLINGS)

    @property
    def is_bound(self) -> bool:
        """Whether the number is stated as a bound; a card also repeats numbers of accountants that give none."""
        return self.standing in ("", Standing.PROVEN, Standing.CONDITIONAL)


@dataclass(frozen=True)
class Examined:
    """A claim beside what was recomputed.

    Attributes:
        claim: as stated.
        lower: the most epsilon at the claim's delta that is proven to leak; None where nothing is.
        upper: the least epsilon that an accountant proves; infinite where none does.
        by: the accountant of `upper`.
        refutations: why the claim is false, a sentence each.
        objections: what else is wrong with it, a sentence each.
    """

    claim: Claim
    lower: float | None
    upper: float
    by: str
    refutations: tuple[str, ...] = field(default=())
    objections: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        """The worst of what was found."""
        if self.refutations:
            return Verdict.REFUTED
        return Verdict.UNSUPPORTED if self.objections else Verdict.CONSISTENT

    def row(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "epsilon": self.claim.epsilon,
            "delta": self.claim.delta,
            "relation": self.claim.ledger.relation.value,
            "accountant": self.claim.accountant or None,
            "verdict": self.verdict.value,
            "proven_lower": self.lower,
            "proven_upper": self.upper,
            "by": self.by,
            "refutations": list(self.refutations),
            "objections": list(self.objections),
        }


def claims_of(path: str | Path, *, epsilon: float | None = None, delta: float | None = None) -> list[Claim]:
    """The claims in a file: a SPEC with a table "claim", a card.json, or a SPEC with `epsilon` and `delta` given.

    Args:
        path: of the JSON file.
        epsilon: the stated epsilon, where the file has none.
        delta: its delta.

    Raises:
        InvalidInput: the file states no claim, or a part of it breaks its rule.
    """
    table = json_table("SPEC", path)
    if "guarantees" in table:
        return _of_card(table)
    table.pop("source", None)  # Where it was published, for the claims board.
    stated: dict[str, Any] = check.instance(
        "claim", table.pop("claim", {}), dict, "a table such as {epsilon: 2.0, delta: 1e-5}"
    )
    check.keys("claim", stated, _KEYS)
    given: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
    stated = stated | {name: value for name, value in given.items() if value is not None}
    for name in ("epsilon", "delta"):
        if name not in stated:
            hint = f'Add "claim": {{"epsilon": ..., "delta": ...}} to the file, or give --{name}.'
            raise check.fail(name, "stated by the claim", None, hint)
    relation = stated.pop("relation", None)
    ledger = Ledger.from_spec(table)
    if relation is not None:
        ledger = Ledger.of(ledger.mechanism, relation=relation)
    return [Claim(ledger, **stated)]


def states_claim(path: str | Path) -> bool:
    """Whether the JSON file is a card or a SPEC with a table "claim"."""
    table = json_table("SPEC", path)
    return "guarantees" in table or "claim" in table


def claim_of(ledger: Ledger, claims: Sequence[Claim] = ()) -> TradeOff | None:
    """The claim that an audit tests: the exact accountant's curve, and each bound that is stated of the mechanisms.

    A number of a card that follows from its ledger lies on that curve or above it, so that both files make one claim.

    Args:
        ledger: what is said to have run.
        claims: what is stated about it; those that are no bounds are left out.

    Returns:
        None where the exact accountant does not apply, and nothing is stated.
    """
    try:
        exact = accountant("pld")(ledger) if ledger.entries or not claims else None
    except Refused:
        exact = None
    stated: list[Curve] = [StatedCurve(each.epsilon, each.delta) for each in claims if each.is_bound]
    if not stated:
        return exact
    curves = stated if exact is None else [exact.curve, *stated]
    return TradeOff(_JointCurve(curves), Standing.CLAIMED, ledger.relation, "the claim")


def _of_card(table: Mapping[str, Any]) -> list[Claim]:
    """One claim for each finite number of a card, about the mechanisms that it lists."""
    rows = check.instance("guarantees", table["guarantees"], list, "a list of tables")
    mechanisms = [{key: value for key, value in row.items() if key != "hash"} for row in mechanism_rows(dict(table))]
    spec = {"relation": table.get("relation", "add_remove"), "mechanisms": mechanisms}
    found = []
    for row in rows:
        stated = {key: row[key] for key in ("epsilon", "delta", "accountant", "standing") if key in row}
        if stated.get("epsilon") == "inf":
            continue
        found.append(Claim(Ledger.from_spec(spec), records=table.get("records"), **stated))
    if not found:
        raise check.fail("guarantees", "a list with a finite epsilon", f"{len(rows)} rows")
    return found


def examine(claim: Claim) -> Examined:
    """Recompute what `claim` states and say what is wrong with it; see `Verdict`."""
    actual = _as_drawn(claim)
    lower, upper, by = _bracket(actual, claim.delta)
    refutations: list[str] = []
    objections: list[str] = []
    if lower is not None and claim.epsilon < lower:
        refutations.append(
            f"At least epsilon {downward(lower, 6)} at delta {claim.delta:g} is proven to leak; "
            f"{claim.epsilon!r} is claimed."
        )
    if claim.epsilon < upper:
        reasons = list(_explained(claim, actual))
        if refutations:
            refutations += reasons
        elif math.isinf(upper) or claim.epsilon < upper - _DIGIT * max(upper, 1e-3):
            objections += [*reasons, f"The least that an accountant proves is epsilon {upward(upper, 6)} ({by})."]
    objections += _left_out(claim, refuted=bool(refutations))
    return Examined(claim, lower, upper, by, tuple(refutations), tuple(objections))


def _bracket(ledger: Ledger, delta: float) -> tuple[float | None, float, str]:
    proven = [name for name, each in ACCOUNTANTS.items() if each.standing is Standing.PROVEN]
    # Mechanisms are taken as stated, so that facts which a ledger leaves open take no lower end away.
    stated = Ledger.of(ledger.mechanism, relation=ledger.relation)
    results = account(stated, delta=delta, accountants=proven).results
    best = min(results, key=lambda result: result.epsilon, default=None)
    shuffled = [(part, steps) for part, steps in ledger.mechanism.steps if isinstance(part, Shuffled)]
    if shuffled:  # The account is for the worst order of the batches; a claim is about one that nobody knows.
        lowers = [shuffled_lower(part, steps, ledger.relation, delta) for part, steps in shuffled]
    else:
        lowers = [result.epsilon_lower for result in results if result.epsilon_lower is not None]
    if best is None:
        return max(lowers, default=None), float("inf"), "none"
    return max(lowers, default=None), best.epsilon, best.tradeoff.source


def shuffled_lower(part: Shuffled, steps: int, relation: Relation, delta: float) -> float:
    """Epsilon at `delta` that steps on shuffled batches leak at least, in an order that nobody knows.

    All other records contribute -C and the one in question +C, so that its batch of the first pass is shifted by 2 (in
    units of C) against the others; without it the shift is 1, and 0 under replace-one by another -C. The event is that
    the largest of T releases exceeds c: P = 1 - Phi((c - 2)/s) Phi(c/s)^(T-1) against Q with the other shift, and
    epsilon >= log((P - delta) / Q) (Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha & Zhang 2024, Section 4). 0 for
    other bases than Gaussian noise.

    Args:
        part: one step on a shuffled batch.
        steps: how many ran.
        relation: of the claim.
        delta: in [0, 1].
    """
    if not isinstance(part.base, Gaussian):
        return 0.0
    noise, batches = part.base.noise_multiplier, min(steps, part.records // part.batch_size)
    if noise <= 0 or steps < part.records // part.batch_size:
        return 0.0  # A pass that stops early may not have come to the record.
    other = 0.0 if relation is Relation.REPLACE_ONE else 1.0
    c = np.linspace(0.0, 2 + 12 * noise, 600)
    rest = (batches - 1) * log_ndtr(c / noise)
    inside, without = (-np.expm1(log_ndtr((c - shift) / noise) + rest) for shift in (2.0, other))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where((inside > delta) & (without > _TAIL), np.log((inside - delta) / without), 0.0)
    return float(max(0.0, np.max(found) - 1e-6))


def _as_drawn(claim: Claim) -> Ledger:
    """The ledger with batches drawn as `claim.sampling` says."""
    if not claim.sampling or claim.sampling == "poisson":
        return claim.ledger
    kind = {"shuffled": Shuffled, "fixed_size": FixedSize}[claim.sampling]
    if claim.records is None:
        raise InvalidInput("records must be stated with sampling; got none. Batches of fixed size are a share of them.")
    made = Ledger(relation=claim.ledger.relation)
    for part, steps in claim.ledger.mechanism.steps:
        rate = part.spec().get("sample_rate")
        batch = max(1, round(claim.records * rate)) if isinstance(rate, float) else 0
        made.add(kind(getattr(part, "base", part), claim.records, batch) if batch else part, steps)
    return made


def _explained(claim: Claim, actual: Ledger) -> Iterator[str]:
    """Which mistake gives the claimed number, a sentence for each that does."""
    for name, each in ACCOUNTANTS.items():
        if each.standing is Standing.PROVEN or not (name == claim.accountant or _gives(name, actual, claim)):
            continue
        if each.standing is Standing.ASYMPTOTIC:
            yield f"The number is that of the central limit theorem ({name}): a limit for many steps, not a bound."
        else:
            yield f"The number is that of {name}, which is {each.standing.value} and no bound."
    for relation in Relation:
        if relation is not actual.relation and _gives("pld", Ledger.of(actual.mechanism, relation=relation), claim):
            yield f"The number is that of the relation {relation.value}; the claim is about {actual.relation.value}."
    poisson = _as_poisson(actual)
    if poisson is not None and any(_gives(name, poisson, claim) for name in ("pld", "rdp", "clt")):
        yield (
            "The number is that of Poisson sampling; batches of another law were drawn, which have no such "
            "amplification."
        )


def _as_poisson(ledger: Ledger) -> Ledger | None:
    """The ledger with shuffled and fixed-size batches taken for Poisson ones; None where there are none."""
    taken = [
        (part.base.poisson(part.batch_size / part.records) if isinstance(part, Shuffled | FixedSize) else part, steps)
        for part, steps in ledger.mechanism.steps
    ]
    changed = taken != list(ledger.mechanism.steps)
    return Ledger.of(Compose.of(*taken), relation=ledger.relation) if changed else None


def _gives(name: str, ledger: Ledger, claim: Claim) -> bool:
    """Whether an accountant's epsilon is the claimed one, within the rounding of published numbers."""
    try:
        epsilon = float(accountant(name)(ledger).epsilon(claim.delta))
    except (Refused, ArithmeticError):
        return False
    return abs(epsilon - claim.epsilon) <= _SAME * claim.epsilon


def _left_out(claim: Claim, *, refuted: bool) -> list[str]:
    """What the claim does not say, whatever its number."""
    found = []
    named = ACCOUNTANTS.get(claim.accountant)
    if named is not None and named.standing is not Standing.PROVEN and claim.standing in ("", "proven") and not refuted:
        found.append(f"It is computed by {named.name}, whose answers are {named.standing.value}: no bound.")
    sizes = [part.records for part, _ in claim.ledger.mechanism.steps if isinstance(part, Shuffled | FixedSize)]
    records = claim.records if claim.records is not None else min(sizes, default=None)
    if records is not None and claim.delta >= 1 / records:
        found.append(
            f"delta {claim.delta:g} is at least 1/n for n = {records}: a mechanism that publishes a record at random "
            "meets it. Ask for a delta well below 1/n."
        )
    if claim.runs > 1:
        upper = _bracket(Ledger.of(claim.ledger.mechanism * claim.runs, relation=claim.ledger.relation), claim.delta)[1]
        found.append(
            f"It is of one run, and the best of {claim.runs} was released: the choice saw the others. All {claim.runs} "
            f"together cost epsilon {upward(upper, 6)} at most; `tacit tune` selects at a lower cost."
        )
    return found
