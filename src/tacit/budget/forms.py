"""A guarantee in two public forms: claims of NIST SP 800-226, and fields of the deployments registry.

One table, `FORMS`, says where each fact about a guarantee stands in either.

Sources: Near, Darais, Lefkovitz & Howarth 2025, NIST SP 800-226; the registry that Dwork, Kohli & Mulligan 2019 and
arXiv 2509.13509 propose, in the schema of opendp/deployments-registry-data (commit 3e9c812).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit import check

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
FORMS = {
    "parameters": ("Privacy Parameters", "privacy parameters", "privacy_loss.privacy_parameters_details"),
    "composition": ("Privacy Parameters", "composition over releases", "accounting.composition"),
    "unit": ("Unit of Privacy", "unit of privacy", "privacy_loss.privacy_unit_details"),
    "mechanisms": ("Algorithms & Correctness", "mechanisms", "implementation.mechanisms"),
    "implementation": ("Algorithms & Correctness", "implementation", "dp_variant.unprotected_quantities"),
    "tests": ("Algorithms & Correctness", "empirical tests", "implementation.justification"),
    "utility": ("Utility", "utility and accuracy", ""),
    "bias": ("Bias", "bias", ""),
    "trust": ("Trust Models", "trust model", "deployment_model.model_name_details"),
    "access": ("Access Control", "data security and access control", ""),
    "timing": ("Side Channels", "side channels", ""),
    "collection": ("Data Collection Exposure", "data collection exposure", ""),
    "name": ("", "", "basic.name"),
    "owner": ("", "", "basic.data_curators"),
    "purpose": ("", "", "basic.intended_use"),
    "date": ("", "", "basic.publication_date"),
    "facts": ("", "", "basic.description"),
    "contact": ("", "", "administrative.notes"),
}
"""A fact -> its component and claim in NIST SP 800-226, and its place in the registry; empty where it has none."""


@dataclass(frozen=True)
class Stated:
    """One fact about a guarantee.

    Attributes:
        value: in words; empty where nobody stated it.
        evidence: where it is written down; empty without any.
        is_open: whether its hazard is open; it is where nothing is stated.
    """

    value: str
    evidence: str = ""
    is_open: bool = False


_UNKNOWN = "not stated"
TRUST = Stated("central: the curator sees the records", "package")
TIMING = Stated("timing is outside of every theorem", is_open=True)


def nist_claims(stated: Mapping[str, Stated], *, standing: str) -> dict[str, Any]:
    """The claims of a guarantee under the components of NIST SP 800-226, from its parameters down to data collection.

    Args:
        stated: by the names of `FORMS`; what is missing is open.
        standing: of the guarantee.

    Raises:
        InvalidInput: a name is none of `FORMS`.

    Example:
        >>> claims = nist_claims({"name": Stated("patients")}, standing="proven")["claims"]
        >>> claims[-1]["component"], claims[-1]["section"], claims[-1]["open"]
        ('Data Collection Exposure', '4.5', True)
    """
    check.keys("stated", stated, FORMS)
    rows = []
    for name, (component, claim, _) in FORMS.items():
        if component:
            fact = stated.get(name, Stated(""))
            place = {"component": component, "section": COMPONENTS[component], "claim": claim}
            said = {"value": fact.value or _UNKNOWN, "evidence": fact.evidence, "standing": standing}
            rows.append(place | said | {"open": fact.is_open or not fact.value})
    return {"dataset": stated["name"].value, "claims": rows}


def registry_fields(
    stated: Mapping[str, Stated], *, unit: str, epsilon: float | str, delta: float, many: bool
) -> dict[str, Any]:
    """The fields of the deployments registry that are known; the status is "Draft", for people know the others.

    Args:
        stated: by the names of `FORMS`.
        unit: the privacy unit.
        epsilon: of the guarantee; left out where it is infinite, for which the schema has no number.
        delta: at which epsilon is bounded.
        many: whether it covers several releases.

    Raises:
        InvalidInput: a name that `FORMS` does not know.

    Example:
        >>> found = registry_fields({"name": Stated("patients")}, unit="record", epsilon=1.0, delta=0.0, many=False)
        >>> found["deployment"]["basic"], found["deployment"]["dp_variant"]
        ({'name': 'patients'}, {'variant_name': 'Pure DP'})
    """
    check.keys("stated", stated, FORMS)
    numbers = {"epsilon": epsilon, "delta": delta}
    numbers = {name: value for name, value in numbers.items() if value not in ("inf", float("inf"))}
    deployment: dict[str, dict[str, Any]] = {
        "basic": {},
        "dp_variant": {"variant_name": "Approximate DP" if delta else "Pure DP"},
        "privacy_loss": {"privacy_unit": unit, "privacy_parameters": numbers},
        "deployment_model": {
            "model_name": "Central",
            "release_type": "Many releases" if many else "One release",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
    }
    for name, (_, _, place) in FORMS.items():
        if place and name in stated and stated[name].value:
            table, _, field = place.partition(".")
            deployment.setdefault(table, {})[field] = stated[name].value
    return {"status": "Draft", "tier": 3, "deployment": deployment}
