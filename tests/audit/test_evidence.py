"""Evidence of canaries: its power is that of simulated runs, and it says whether it could have refuted the claim."""

from dataclasses import replace

import pytest

from tacit.accounting import accountant
from tacit.audit.evidence import CanaryEvidence, canary_power
from tacit.mechanisms import Gaussian
from tests.reports.test_card import audit

BOUNDS = {"canaries": 400, "confidence": 0.95}


@pytest.fixture(scope="module")
def claim():
    return accountant("pld")(Gaussian(2.0).poisson(0.1) * 20)


def test_the_power_is_the_share_of_simulated_runs_that_refute_the_claim(claim):
    def scores(included, run):
        return included * (1.0 if run % 4 == 0 else 0.0)

    assert canary_power(claim, scores, runs=8, **BOUNDS) == 0.25


def test_evidence_could_refute_only_where_every_broken_copy_is_noticed(claim):
    found = CanaryEvidence(audit(0.0, trials="independent"), claim, 1.0, 20, 40, {"noise": True}, {"a": 1.0, "b": 0.4})
    assert not found.could_refute
    assert replace(found, power={"a": 1.0, "b": 0.5}).could_refute
    assert not found.refuted
    assert replace(found, monitors={"noise": False}).refuted
    assert replace(found, result=audit(4.0, trials="independent")).refuted
    assert found.row()["power"] == {"a": 1.0, "b": 0.4}
