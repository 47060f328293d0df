"""The total of a data set: the ledger of everything that was reserved, its curve, and what is left in words.

What a registry tells others: releases and totals as JSON and CSV.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.accounting.adaptivity import FIXED
from tacit.accounting.registry import ask
from tacit.budget.records import ABANDONED, Held, Known, Steps, mechanisms
from tacit.budget.scopes import Scope, in_words, least_noise, reached, target_from_spec, used
from tacit.budget.store import Row
from tacit.errors import BudgetExceeded, InvalidInput, Refused
from tacit.mechanisms import Compose, Gaussian, Mechanism, Parallel
from tacit.serialization import json_text
from tacit.standing import Standing
from tacit.tradeoff import Epsilon, Target, TradeOff

LOOKED = (
    "The settings of later runs on these records (noise, sampling rate, steps) were chosen without looking at the "
    "results of earlier ones"
)
"""The assumption of a total over runs that were not declared fixed beforehand (budgets of adaptively chosen runs)."""
_FALLBACKS = ("rdp", "zcdp", "optimal", "naive")  # proven accountants, where the exact one has no answer
_NOTHING = "Nothing is left."
_DELTA = 1e-5  # of a statement without a cap that names one


def total_of(known: Known) -> Ledger:
    """Everything that was reserved and not given back, with what the runs said of facts and standing.

    Under a filter it holds the filter's budget, which is spent whatever the runs were.
    """
    found = Ledger(relation=known.relation, unit=known.unit)
    counted = _counted(known)
    for held in counted:
        alone = held.ledger(known.relation, known.unit, covered=known.scope.is_filter)
        found.absorb_marks(alone)
        if held.part is None and not known.scope.is_filter:
            for entry in alone.entries:
                found.add(entry.mechanism, entry.steps, held.label)
    if known.scope.is_filter:
        if any(held.steps for held in counted):
            spent = known.scope.filter_after((), known.relation)
            found.add(spent.mechanism, note=spent.note)
    else:
        for number, split in enumerate(sorted({held.part[0] for held in counted if held.part is not None})):
            found.add(_parallel(counted, split, known.splits[split], number), note=f"parts of {split}")
        if known.scope.kind == "fixed":
            found.assume(FIXED)
        elif _may_follow(known, counted):
            found.assume(LOOKED)
            found._marked = Standing.weakest(found._marked, Standing.CONDITIONAL)
    for label in known.untracked:
        found.assume(f"Run {label!r} read these records without being charged; this total does not hold it.")
        found._marked = Standing.CLAIMED
    return found


def curve_of(ledger: Ledger, target: Target | None) -> TradeOff:
    """The total by `pld`; where it refuses, by the proven accountant with the least number at `target`."""
    try:
        return accountant("pld")(ledger)
    except Refused as refusal:
        found = [each for each in map(partial(_asked, ledger, target), _FALLBACKS) if each is not None]
        if not found:
            raise refusal from None
        return found[0] if target is None else min(found, key=target.excess)


def _asked(ledger: Ledger, target: Target | None, name: str) -> TradeOff | None:
    """The total by the accountant `name`; None where it refuses, at once or at `target`."""
    try:
        answer = accountant(name)(ledger)
        reached(Epsilon(1.0, _DELTA) if target is None else target, answer)
    except Refused:
        return None
    return answer


def check_caps(before: Known, after: Known, label: str) -> None:
    """Raise `BudgetExceeded` where the run `label`, which makes `after` of `before`, crosses a cap or the filter."""
    if after.scope.is_filter:
        _check_filter(before, after, label)
        return
    for cap in after.caps.values():
        if after.scope.kind == "odometer" and isinstance(cap, Epsilon):
            now, then = (_bound(known, cap.delta) for known in (before, after))
            if then > cap.epsilon:
                raise BudgetExceeded(_exceeded(before, cap, label, now, then))
            continue
        curve = curve_of(total_of(after), cap)
        if not cap.met(curve):
            now = reached(cap, curve_of(total_of(before), cap))
            raise BudgetExceeded(_exceeded(before, cap, label, now, reached(cap, curve)))


def check_left(known: Known, label: str) -> None:
    """Raise `BudgetExceeded` where a cap or the filter leaves no room for any release."""
    for cap in known.caps.values():
        left = left_in_words(known, cap)
        if left == _NOTHING:
            raise BudgetExceeded(
                f"budget of {known.name!r} must stay within {in_words(cap)}; got run {label!r}. {left}"
            )


def left_in_words(known: Known, cap: Target) -> str:
    """What one more release may cost under `cap`, as the noise of a single Gaussian release."""
    if known.scope.is_filter:
        spent = known.scope.filter_after(_ran(known), known.relation)
        if known.scope.kind == "pure":
            left = float((spent.limit - spent.spent)[0])
            return f"Left: one release of pure epsilon {left:.4g}." if left > 0 else _NOTHING
        noise = least_noise(spent)
    else:
        noise = _least_noise(known, cap)
    if noise is None:
        return _NOTHING
    alone = reached(cap, curve_of(Ledger.of(Gaussian(noise), relation=known.relation), cap))
    return f"Left: one Gaussian release of noise multiplier {noise:.4g} ({alone:.4g} by itself)."


def spent_in_words(known: Known) -> str:
    """What was spent of which caps, by what."""
    if known.scope.budget is not None:
        share = used(known.scope.filter_after(_ran(known), known.relation))
        standing = total_of(known).standing.value
        told = in_words(known.scope.budget)
        return f"used {share:.1%} of the {known.scope.says} that keeps all runs within {told} ({standing})"
    spent = curve_of(total_of(known), next(iter(known.caps.values()), None))
    each = [f"{reached(cap, spent):.4g} of {in_words(cap)}" for cap in known.caps.values()]
    cost = "; ".join(each) or f"epsilon {float(spent.epsilon(_DELTA)):.4g} at delta {_DELTA:g}, no cap"
    return f"spent {cost} ({spent.source}, {spent.standing.value})"


def odometer_in_words(known: Known) -> str:
    """The statement of an odometer; empty under another scope."""
    if known.scope.kind != "odometer":
        return ""
    delta = delta_of(known)
    return (
        f"Odometer: with probability {1 - delta:g} the privacy loss that happened is at most "
        f"{_bound(known, delta):.4g} at all times (ex post: no guarantee of the runs beforehand)."
    )


def _counted(known: Known) -> list[Held]:
    return [held for held in known.held.values() if held.status != ABANDONED]


def _ran(known: Known) -> Iterator[tuple[Mechanism, int]]:
    for held in _counted(known):
        yield from mechanisms(held.steps)


def _bound(known: Known, delta: float) -> float:
    return known.scope.odometer_after(_ran(known), known.relation).bound(delta).bound


def _may_follow(known: Known, counted: list[Held]) -> bool:
    """Whether a run that was not declared fixed reserved something after another run had."""
    scopes = {held.id: held.scope for held in counted}
    order = [each for each in known.reserved if each in scopes]
    return any(scopes[each] != "fixed" and set(order[:i]) - {each} for i, each in enumerate(order))


def _check_filter(before: Known, after: Known, label: str) -> None:
    try:
        after.scope.filter_after(_ran(after), after.relation)
    except BudgetExceeded:
        assert after.scope.budget is not None
        raise BudgetExceeded(
            f"runs of {after.name!r} must be admitted by the {after.scope.says} of {in_words(after.scope.budget)}; run "
            f"{label!r} does not fit. {left_in_words(before, after.scope.budget)}"
        ) from None


def _exceeded(before: Known, cap: Target, label: str, now: float, then: float) -> str:
    return (
        f"budget of {before.name!r} must stay within {in_words(cap)}; run {label!r} would take it from "
        f"{now:.4g} to {then:.4g}. {left_in_words(before, cap)}"
    )


def _least_noise(known: Known, cap: Target) -> float | None:
    """Noise multiplier of the least noisy Gaussian release after which `cap` is still met."""
    from tacit.calibration import smallest

    total = total_of(known)

    def after(noise_multiplier: float) -> Ledger:
        trial = total.copy()
        trial.add(Gaussian(noise_multiplier))
        return trial

    if total.entries and not cap.met(curve_of(total, cap)):
        return None
    try:
        return smallest("noise_multiplier", after, cap, relation=total.relation).value
    except (InvalidInput, Refused):
        return None


def _parallel(counted: list[Held], split: str, parts: int, number: int) -> Mechanism:
    """The runs on the parts of one division: each record is in one part (McSherry 2009, Theorem 4)."""
    branches = []
    for index in range(parts):
        steps: Steps = sum((held.steps for held in counted if held.part == (split, index)), Steps())
        branches.append(Compose.of(*mechanisms(steps)))
    running = [branch for branch in branches if branch.steps]
    return Parallel(tuple(running), number) if len(running) > 1 else running[0]


FORMS = ("json", "csv")
_COLUMNS = ("number", "time", "dataset", "kind", "says")


def export_text(datasets: Sequence[tuple[Known, Sequence[Row]]], form: str) -> str:
    """The export of data sets, each with its rows, in the form "json" or "csv".

    No export holds fingerprints, keys, users or computers.

    Example:
        >>> export_text([], "json")
        '[]'
    """
    if check.choice("format", form, FORMS) == "csv":
        return _csv(datasets)
    return json_text([total_table(known) | {"history": history_rows(rows)} for known, rows in datasets])


def total_table(known: Known) -> dict[str, Any]:
    """Caps, total, reservations and assumptions of a data set."""
    total, delta = total_of(known), delta_of(known)
    spent = curve_of(total, next(iter(known.caps.values()), None))
    answers = ask(spent, delta=delta).row()
    held = [
        {name: getattr(each, name) for name in ("label", "time", "status", "scope")}
        | {"mechanisms": [mechanism.spec() | {"steps": steps} for mechanism, steps in mechanisms(each.steps)]}
        for each in known.held.values()
    ]
    return {
        "dataset": known.name,
        "unit": known.unit,
        "relation": known.relation,
        "public_facts": known.facts,
        "scope": known.scope.spec() | {"says": known.scope.says, "statement": odometer_in_words(known)},
        "caps": [
            {"cap": in_words(cap), "spent": reached(cap, spent), "met": cap.met(spent)} for cap in known.caps.values()
        ],
        "total": {name: value for name, value in answers.items() if name not in ("relation", "delta_lower")},
        "assumptions": total.assumptions,
        "unsafe": total.unsafe,
        "reservations": held,
    }


def history_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every entry about a data set in words."""
    labels = {row.reservation: row.body["label"] for row in rows if row.kind == "reserve"}
    return [
        {name: getattr(row, name) for name in ("number", "time", "dataset", "kind")}
        | {"says": check.visible(_says(row, labels))}
        for row in rows
    ]


def _says(row: Row, labels: dict[str, str]) -> str:
    body, label = row.body, labels.get(row.reservation, "")
    if row.kind == "declare":
        scope = Scope.from_spec(body.get("scope", {"kind": "adaptive"}))
        within = "" if scope.budget is None else f" of {in_words(scope.budget)}"
        return f"{body['relation']}, unit {body['unit']}, scope {scope.says}{within}"
    if row.kind == "cap":
        return in_words(target_from_spec(body))
    if row.kind == "reserve":
        runs = sum(spec["steps"] for spec in body["mechanisms"])
        return f"{label}: {runs} releases" if runs else f"{label}: opened"
    if row.kind in ("untracked", "audit"):
        return f"{body['label']}: {body.get('says', 'read the records without being charged')}"
    if row.kind == "split":
        return f"{body['split']}: {body['parts']} parts"
    if row.kind == "fingerprint":
        return "records are recognised from now on"
    return label


def _csv(datasets: Sequence[tuple[Known, Sequence[Row]]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for _, rows in datasets:
        for row in history_rows(rows):
            writer.writerow({name: _harmless(row[name]) for name in _COLUMNS})
    return text.getvalue()


def _harmless(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula, made one that it shows."""
    return "'" + cell if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def delta_of(known: Known) -> float:
    """The delta at which the epsilon of a total is told: that of its cap, 1e-5 without one."""
    return next((cap.delta for cap in known.caps.values() if isinstance(cap, Epsilon)), _DELTA)
