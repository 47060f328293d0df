"""The exports hold the fields of the deployments registry, and the components of NIST SP 800-226, and no others.

Names and values are those of schemas/deployments-schema.yaml of github.com/opendp/deployments-registry-data, commit
3e9c812, which allows no further fields. Components are those of Figure 1 of NIST SP 800-226 (see docs/budget.md).
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tacit.budget import Registry
from tacit.budget.totals import export_text
from tacit.cli import main
from tacit.mechanisms import Gaussian, RandomizedResponse
from tacit.statement import Subject, open_envelope
from tacit.statement.forms import FORMS, nist_claims, public_form, registry_fields
from tacit.statement.writing import budget_statement
from tacit.tradeoff import Epsilon

FIELDS: dict[str, Any] = {
    "url_slug": str,
    "status": ["Converted", "Draft", "Pending", "Changes Required", "Approved", "Approved (Update Requested)"],
    "tier": [1, 2, 3],
    "deployment": {
        "basic": dict.fromkeys(
            ("name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region"), str
        )
        | {"publication_date": str, "data_product_sector": str},
        "dp_variant": {
            "variant_name": ["Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"],
            "data_domain": str,
            "unprotected_quantities": str,
        },
        "privacy_loss": {
            "privacy_unit": str,
            "privacy_unit_details": str,
            "privacy_parameters": dict.fromkeys(("epsilon", "delta", "rho"), float),
            "privacy_parameters_details": str,
        },
        "deployment_model": {
            "model_name": ["Local", "Central", "Shuffle", "Federated", "Varies"],
            "actors": str,
            "release_type": ["One release", "Many releases"],
            "data_source_type": ["Static", "Dynamic"],
            "access_type": ["Interactive", "Non-interactive"],
        }
        | dict.fromkeys(
            f"{each}_details" for each in ("model_name", "release_type", "data_source_type", "access_type")
        ),
        "accounting": {"post_processing": str, "composition": str},
        "implementation": dict.fromkeys(
            ("preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"), str
        ),
        "administrative": dict.fromkeys(("registry_authors", "sources", "notes"), str),
    },
}


def wrong(found: dict[str, Any], fields: dict[str, Any], at: str = "") -> Iterator[str]:
    """Fields that the schema does not have, and values that it does not allow."""
    for name, value in found.items():
        rule = fields.get(name, "unknown")
        if rule == "unknown" or isinstance(rule, dict) != isinstance(value, dict):
            yield f"{at}{name}"
        elif isinstance(rule, dict):
            yield from wrong(value, rule, f"{at}{name}.")
        elif (isinstance(rule, list) and value not in rule) or (isinstance(rule, type) and not isinstance(value, rule)):
            yield f"{at}{name}: {value}"


@pytest.mark.parametrize("form", ["json", "csv"])
def test_no_control_character_of_a_label_reaches_an_export_or_the_terminal(tmp_path, capsys, form):
    dataset = Registry.create(tmp_path / "budget.sqlite").declare("patients")
    dataset.reserve(Gaussian(5.0), label="run\x1b[2J\x9b31m")
    dataset.note_untracked("other\x1b[2J")
    assert not set("\x1b\x9b") & set(export_text([(dataset.known, dataset.history())], form))
    assert main(["budget", "history", "--registry", str(tmp_path / "budget.sqlite")]) == 0
    told = capsys.readouterr().out
    assert not set("\x1b\x9b") & set(told)
    assert "run\\x1b[2J" in told


@pytest.mark.parametrize("ran", [[Gaussian(8.0)], [Gaussian(8.0)] * 2, [RandomizedResponse(0.5)]], ids=str)
def test_every_field_is_one_of_the_registry(tmp_path, ran):
    dataset = Registry.create(tmp_path / "budget.sqlite").declare("patients")
    dataset.cap(Epsilon(3.0, 1e-6))
    for mechanism in ran:
        dataset.reserve(mechanism, label="release")
    row = public_form(open_envelope(budget_statement(dataset, Subject("patients"))).payload, "registry")
    assert not list(wrong(row, FIELDS))
    assert row["status"] == "Draft"
    assert row["deployment"]["basic"].keys() == {"name", "publication_date"}  # What only people know is never made up.


FIGURE_1 = (
    *("Privacy Parameters", "Unit of Privacy", "Algorithms & Correctness", "Utility", "Bias"),
    *("Trust Models", "Access Control", "Side Channels", "Data Collection Exposure"),
)


def test_claims_stand_under_the_components_of_the_publication_from_the_top_down(tmp_path):
    dataset = Registry.create(tmp_path / "budget.sqlite").declare("patients")
    dataset.reserve(Gaussian(8.0), label="release")
    table = public_form(open_envelope(budget_statement(dataset, Subject("patients"))).payload, "nist")
    assert tuple(dict.fromkeys(row["component"] for row in table["claims"])) == FIGURE_1
    assert [row["section"] for row in table["claims"]][:3] == ["2.2", "2.2", "2.4"]
    found = {row["claim"]: row for row in table["claims"]}
    assert found["utility and accuracy"]["open"]
    assert found["bias"]["open"]
    assert not found["unit of privacy"]["open"]


GUARANTEE = {"unit": "record", "at": [{"epsilon": 1.0, "delta": 1e-5}]}


def test_every_fact_has_its_place_in_both_forms():
    stated = {name: (f"the {name}", "", False) for name in FORMS}
    assert not list(wrong(registry_fields(stated, GUARANTEE, many=False), FIELDS))
    fields = registry_fields(stated, GUARANTEE, many=False)["deployment"]
    claims = {row["claim"]: row["value"] for row in nist_claims(stated, "proven")["claims"]}
    for name, (_, claim, place) in FORMS.items():
        assert claim or place
        assert not claim or claims[claim] == f"the {name}"
        table, _, field = place.partition(".")
        assert not place or fields[table][field] == f"the {name}"


def test_an_infinite_epsilon_is_no_number_of_the_registry():
    guarantee = {"unit": "record", "at": [{"epsilon": "inf", "delta": 1e-5}]}
    fields = registry_fields({"name": ("patients", "", False)}, guarantee, many=False)
    assert fields["deployment"]["privacy_loss"]["privacy_parameters"] == {"delta": 1e-5}
