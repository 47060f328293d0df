"""Claims in the words of NIST SP 800-226: each stands under a component of the differential privacy pyramid."""

from __future__ import annotations

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
