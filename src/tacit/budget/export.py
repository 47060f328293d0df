"""What a registry tells others: releases and totals as JSON and CSV, and in two public forms of claims.

Claims in the words of NIST SP 800-226: each stands under a component of the differential privacy pyramid.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from tacit import __version__, check
from tacit.budget.dataset import DatasetBudget
from tacit.budget.records import mechanisms
from tacit.budget.scopes import Scope, in_words, reached
from tacit.budget.store import Row
from tacit.budget.totals import odometer_in_words
from tacit.serialization import json_text
from tacit.tradeoff import Epsilon

COMPONENTS = {
    "Privacy Parameters": "2.2",
    "Unit of Privacy": "2.4",
    "Algorithms & Correctness": "3",
    "Utility": "3.2",
    "Bias": "3.3",
    "Trust Models": "4.2",
    "Access Control": "4.4",
    "Side Channels": "4.3",
    "Data Collection Exposure": "4.5",
}
"""The components of a differential privacy guarantee (Fig. 1), from its top down, each with its section."""


def claim_row(component: str, claim: str, value: str, evidence: str, *, standing: str, is_open: bool) -> dict[str, Any]:
    """One claim: its component and section, what is claimed, the evidence for it, and whether its hazard is open.

    Args:
        component: one of COMPONENTS.
        claim: what is claimed, in a few words.
        value: the claim itself.
        evidence: where it is written down; empty without any.
        standing: of the guarantee.
        is_open: whether its hazard is open.

    Raises:
        InvalidInput: the publication has no such component.

    Example:
        >>> row = claim_row("Bias", "bias", "not stated", "", standing="proven", is_open=True)
        >>> row["component"], row["section"]
        ('Bias', '3.3')

    Source: Near, Darais, Lefkovitz & Howarth 2025, NIST SP 800-226, Figure 1.
    """
    section = COMPONENTS[check.choice("component", component, COMPONENTS)]
    place = {"component": component, "section": section, "claim": claim}
    return place | {"value": value, "evidence": evidence, "standing": standing, "open": is_open}


_DELTA = 1e-5  # of a total without a cap that names one
_COLUMNS = ("number", "time", "dataset", "kind", "says")


def export_text(datasets: Sequence[DatasetBudget], form: str) -> str:
    """The export in the form "json", "csv", "sp800-226" or "deployments".

    No export holds fingerprints, keys, users or computers.

    Example:
        >>> export_text([], "json")
        '[]'
    """
    forms: dict[str, Callable[[Sequence[DatasetBudget]], str]] = {
        "json": lambda each: json_text([totals(one) | {"history": history_rows(one)} for one in each]),
        "csv": _csv,
        "sp800-226": lambda each: json_text([_sp800_226(one) for one in each]),
        "deployments": lambda each: json_text([_deployment(one) for one in each]),
    }
    return forms[check.choice("format", form, forms)](datasets)


def totals(dataset: DatasetBudget) -> dict[str, Any]:
    """Caps, total, reservations and assumptions of a data set."""
    known, total, spent = dataset.known, dataset.total(), dataset.spent()
    delta = _delta(dataset)
    answer = spent.epsilon(delta)
    held = [
        {
            "label": each.label,
            "time": each.time,
            "status": each.status,
            "scope": each.scope,
            "mechanisms": [mechanism.spec() | {"steps": steps} for mechanism, steps in mechanisms(each.steps)],
        }
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
        {
            "number": row.number,
            "time": row.time,
            "dataset": row.dataset,
            "kind": row.kind,
            "says": check.visible(_says(row, labels)),
        }
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


def _delta(dataset: DatasetBudget) -> float:
    return next((cap.delta for cap in dataset.caps if isinstance(cap, Epsilon)), _DELTA)


def _sp800_226(dataset: DatasetBudget) -> dict[str, Any]:
    """Claims under the components of NIST SP 800-226 (March 2025), from the guarantee down to data collection.

    Each has the claim, the value, the evidence in the registry, and whether its hazard is open. Nothing is claimed that
    the registry does not hold.
    """
    found = totals(dataset)
    total, last = found["total"], max((row.number for row in dataset.history()), default=0)
    evidence, weak = f"registry entries up to {last}", total["standing"] != "proven"

    def row(component: str, claim: str, value: str, proof: str, *, is_open: bool) -> dict[str, Any]:
        return claim_row(component, claim, value, proof, standing=total["standing"], is_open=is_open)

    algorithms, unknown = "Algorithms & Correctness", "not stated in the registry"
    mechanisms_run = ", ".join(_mechanisms(found)) or "none"
    timing = "timing is outside of every theorem; noise on a grid"
    return {
        "dataset": dataset.name,
        "claims": [
            row("Privacy Parameters", "privacy parameters", _parameters(total), evidence, is_open=weak),
            row("Privacy Parameters", "composition over releases", _composition(found), evidence, is_open=weak),
            row(
                "Unit of Privacy",
                "unit of privacy",
                f"{found['unit']}, {found['relation']}",
                "declaration",
                is_open=False,
            ),
            row(algorithms, "mechanisms", mechanisms_run, evidence, is_open=False),
            row("Utility", "utility and accuracy", unknown, "", is_open=True),
            row("Bias", "bias", unknown, "", is_open=True),
            row("Trust Models", "trust model", "central: the curator sees the records", "package", is_open=False),
            row("Access Control", "data security and access control", unknown, "", is_open=True),
            row("Side Channels", "side channels", timing, "facts of the runs", is_open=True),
            row("Data Collection Exposure", "data collection exposure", unknown, "", is_open=True),
        ],
    }


def _deployment(dataset: DatasetBudget) -> dict[str, Any]:
    """The fields of the deployments registry (Dwork, Kohli & Mulligan 2019; schema of OpenDP) that a registry knows.

    What only people know is left out, so the status is "Draft".
    """
    found = totals(dataset)
    total = found["total"]
    pure = total["delta"] == 0.0
    many = sum(each["status"] != "abandoned" for each in found["reservations"]) > 1
    return {
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {"name": dataset.name},
            "dp_variant": {
                "variant_name": "Pure DP" if pure else "Approximate DP",
                "unprotected_quantities": "; ".join([*found["assumptions"], *found["unsafe"]]),
            },
            "privacy_loss": {
                "privacy_unit": found["unit"],
                "privacy_unit_details": f"neighbouring relation {found['relation']}",
                "privacy_parameters": {"epsilon": total["epsilon"], "delta": total["delta"]},
                "privacy_parameters_details": f"{_parameters(total)}; mu {total['mu']:.4g}",
            },
            "deployment_model": {
                "model_name": "Central",
                "release_type": "Many releases" if many else "One release",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {"composition": _composition(found)},
            "implementation": {
                "mechanisms": f"{', '.join(_mechanisms(found))}; tacit {__version__}, secure stream, noise on a grid"
            },
        },
    }


def _parameters(total: dict[str, Any]) -> str:
    return f"epsilon {total['epsilon']:.4g} at delta {total['delta']:g}, {total['standing']}"


def _composition(found: dict[str, Any]) -> str:
    scopes = sorted({each["scope"] for each in found["reservations"] if each["status"] != "abandoned"})
    scope = found["scope"]["says"]
    if scope.startswith("filter"):
        return f"{scope}: every run was admitted before it ran, whatever it followed; {found['total']['accountant']}"
    told = f"exact composition by {found['total']['accountant']}; scope {scope}"
    return f"{told}; declared of the runs: {', '.join(scopes) or 'none'}"


def _mechanisms(found: dict[str, Any]) -> list[str]:
    return sorted({spec["type"] for each in found["reservations"] for spec in each["mechanisms"]})
