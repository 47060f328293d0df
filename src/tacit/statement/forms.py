"""`public_form`: any statement in the words of NIST SP 800-226, or as fields of the deployments registry.

One table, `FORMS`, says where each fact about a guarantee stands in either.

Sources: Near, Darais, Lefkovitz & Howarth 2025, NIST SP 800-226; the registry that Dwork, Kohli & Mulligan 2019 and
arXiv 2509.13509 propose, in the schema of opendp/deployments-registry-data (commit 3e9c812).
"""

import math
from collections.abc import Mapping
from typing import Any

from tacit import check

FORMS = {
    "parameters": ("2.2 Privacy Parameters", "privacy parameters", "privacy_loss.privacy_parameters_details"),
    "composition": ("2.2 Privacy Parameters", "composition over releases", "accounting.composition"),
    "unit": ("2.4 Unit of Privacy", "unit of privacy", "privacy_loss.privacy_unit_details"),
    "mechanisms": ("3 Algorithms & Correctness", "mechanisms", "implementation.mechanisms"),
    "implementation": ("3 Algorithms & Correctness", "implementation", "dp_variant.unprotected_quantities"),
    "tests": ("3 Algorithms & Correctness", "empirical tests", "implementation.justification"),
    "utility": ("3.2 Utility", "utility and accuracy", ""),
    "bias": ("3.3 Bias", "bias", ""),
    "trust": ("4.2 Trust Models", "trust model", "deployment_model.model_name_details"),
    "access": ("4.4 Access Control", "data security and access control", ""),
    "timing": ("4.3 Side Channels", "side channels", ""),
    "collection": ("4.5 Data Collection Exposure", "data collection exposure", ""),
    "name": ("", "", "basic.name"),
    "owner": ("", "", "basic.data_curators"),
    "purpose": ("", "", "basic.intended_use"),
    "date": ("", "", "basic.publication_date"),
    "facts": ("", "", "basic.description"),
    "contact": ("", "", "administrative.notes"),
}
"""A fact -> its component (Fig. 1, from its top down) with section, its claim in NIST SP 800-226, and its place in the
registry; empty where it has none."""
Stated = Mapping[str, tuple[str, str, bool]]
"""By the names of `FORMS`: a fact in words, where it is written down, and whether its hazard is open."""
_UNCHECKED = ("declared", "assumed")


def public_form(payload: Mapping[str, Any], form: str) -> dict[str, Any]:
    """A statement as claims of NIST SP 800-226 ("nist"), or as fields of the deployments registry ("registry").

    Args:
        payload: of the statement, which `check_statement` read.
        form: "nist" or "registry".

    Raises:
        InvalidInput: the form is another.

    Example:
        >>> from tacit.accounting import Ledger
        >>> from tacit.mechanisms import Gaussian
        >>> from tacit.statement import Subject, statement
        >>> table = statement(Subject("digits"), Ledger.of(Gaussian(4.0)))
        >>> public_form(table, "registry")["deployment"]["privacy_loss"]["privacy_unit"]
        'record'
    """
    if check.choice("format", form, ("nist", "registry")) == "nist":
        return nist_claims(_stated(payload), payload["guarantee"]["standing"])
    return registry_fields(_stated(payload), payload["guarantee"], many=len(payload["mechanism"]["mechanisms"]) > 1)


def nist_claims(stated: Stated, standing: str) -> dict[str, Any]:
    """The claims of a guarantee of this standing under the components of NIST SP 800-226; what is not stated is open.

    Example:
        >>> claims = nist_claims({"name": ("patients", "", False)}, "proven")["claims"]
        >>> claims[-1]["component"], claims[-1]["section"], claims[-1]["open"]
        ('Data Collection Exposure', '4.5', True)
    """
    rows = []
    for name, (place, claim, _) in FORMS.items():
        if place:
            section, _, component = place.partition(" ")
            value, evidence, is_open = stated.get(name, ("not stated", "", True))
            row = {"component": component, "section": section, "claim": claim, "value": value or "not stated"}
            rows.append(row | {"evidence": evidence, "standing": standing, "open": is_open or not value})
    return {"dataset": stated["name"][0], "claims": rows}


def registry_fields(stated: Stated, guarantee: Mapping[str, Any], *, many: bool) -> dict[str, Any]:
    """The fields of the deployments registry that are known; the status is "Draft", for people know the others.

    Args:
        stated: what is stated.
        guarantee: of a statement; an infinite epsilon is left out, for which the schema has no number.
        many: whether it covers several releases.

    Example:
        >>> guarantee = {"unit": "record", "at": [{"epsilon": 1.0, "delta": 0.0}]}
        >>> found = registry_fields({"name": ("patients", "", False)}, guarantee, many=False)
        >>> found["deployment"]["basic"], found["deployment"]["dp_variant"]
        ({'name': 'patients'}, {'variant_name': 'Pure DP'})
    """
    first = guarantee["at"][0]
    numbers = {name: first[name] for name in ("epsilon", "delta") if first[name] not in ("inf", math.inf)}
    deployment: dict[str, dict[str, Any]] = {
        "basic": {},
        "dp_variant": {"variant_name": "Approximate DP" if first["delta"] else "Pure DP"},
        "privacy_loss": {"privacy_unit": guarantee["unit"], "privacy_parameters": numbers},
        "deployment_model": {
            "model_name": "Central",
            "release_type": "Many releases" if many else "One release",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
    }
    for name, (_, _, place) in FORMS.items():
        if place and name in stated and stated[name][0]:
            table, _, field = place.partition(".")
            deployment.setdefault(table, {})[field] = stated[name][0]
    return {"status": "Draft", "tier": 3, "deployment": deployment}


def _stated(payload: Mapping[str, Any]) -> Stated:
    """The facts of a statement."""
    subject, guarantee, mechanism = payload["subject"], payload["guarantee"], payload["mechanism"]
    digest = payload["digests"]["ledger"]
    evidence = f"ledger {digest}" if digest else "mechanisms of the statement"
    weak = guarantee["standing"] != "proven"
    bounds = [f"epsilon at most {row['epsilon']} at delta {row['delta']}" for row in guarantee["at"]]
    taken = [f"{fact['how']}: {fact['says'] or fact['id']}" for fact in payload["facts"] if fact["how"] in _UNCHECKED]
    taken += [*mechanism.get("assumptions", ()), *mechanism.get("unsafe", ())]
    found = [f"{row['attack']}: epsilon at least {row['epsilon_lower']}" for row in payload["evidence"]["audits"]]
    ran = sorted({str(row.get("type")) for row in mechanism["mechanisms"]})
    unit = f"{subject.get('unit') or guarantee['unit']}, {guarantee['relation']}"
    said = f"{'; '.join(bounds)}; {guarantee['standing']}, by {guarantee['accountant']}"
    about = {"name": subject["dataset"], "facts": "; ".join(subject.get("facts", ()))}
    about |= {name: subject[name] for name in ("owner", "purpose", "date")}
    about |= {"contact": f"Contact: {subject['contact']}" if subject["contact"] else ""}
    return {
        "parameters": (said, evidence, weak),
        "composition": (f"this ledger alone; scope {guarantee['scope']}", evidence, True),
        "unit": (unit, "facts of the statement", False),
        "mechanisms": (", ".join(ran), evidence, False),
        "implementation": ("; ".join(taken) or "nothing is declared or assumed", "facts", bool(taken)),
        "tests": ("; ".join(found), "audits of the statement", False),
        "trust": ("central: the curator sees the records", "package", False),
        "timing": ("timing is outside of every theorem", "", True),
        **{name: (value, "", False) for name, value in about.items()},
    }
