"""What a registry tells others: releases and totals as JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from tacit import check
from tacit.budget.records import mechanisms
from tacit.budget.registry import DatasetBudget
from tacit.budget.scopes import Scope, in_words, reached
from tacit.budget.store import Row
from tacit.budget.totals import odometer_in_words
from tacit.serialization import json_text
from tacit.tradeoff import Epsilon

FORMS = ("json", "csv")
_DELTA = 1e-5  # of a total without a cap that names one
_COLUMNS = ("number", "time", "dataset", "kind", "says")


def export_text(datasets: Sequence[DatasetBudget], form: str) -> str:
    """The export in the form "json" or "csv".

    No export holds fingerprints, keys, users or computers.

    Example:
        >>> export_text([], "json")
        '[]'
    """
    if check.choice("format", form, FORMS) == "csv":
        return _csv(datasets)
    return json_text([totals(each) | {"history": history_rows(each)} for each in datasets])


def totals(dataset: DatasetBudget) -> dict[str, Any]:
    """Caps, total, reservations and assumptions of a data set."""
    known, total, spent = dataset.known, dataset.total(), dataset.spent()
    delta = delta_of(dataset)
    answer = spent.epsilon(delta)
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
        "total": {
            "accountant": spent.source,
            "standing": spent.standing.value,
            "epsilon": float(answer),
            "epsilon_lower": answer.interval[0],
            "delta": delta,
            "mu": float(spent.mu()),
            "advantage": float(spent.advantage()),
        },
        "assumptions": total.assumptions,
        "unsafe": total.unsafe,
        "reservations": held,
    }


def history_rows(dataset: DatasetBudget) -> list[dict[str, Any]]:
    """Every entry in words."""
    rows = dataset.history()
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
        from tacit.budget.scopes import target_from_spec

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


def _csv(datasets: Sequence[DatasetBudget]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for dataset in datasets:
        for row in history_rows(dataset):
            writer.writerow({name: _harmless(row[name]) for name in _COLUMNS})
    return text.getvalue()


def _harmless(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula, made one that it shows."""
    return "'" + cell if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def delta_of(dataset: DatasetBudget) -> float:
    """The delta at which the epsilon of a total is told: that of its cap, 1e-5 without one."""
    return next((cap.delta for cap in dataset.caps if isinstance(cap, Epsilon)), _DELTA)
