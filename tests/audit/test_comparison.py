"""`audit <= claim` for what audits return, and a sentence instead of a TypeError for what is no claim."""

import numpy as np
import pytest

from tacit.accounting import Ledger, accountant
from tacit.attacks import Scores
from tacit.audit import Report, audit_scores
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian


def parts():
    ledger = Ledger()
    ledger.add(Gaussian(5.0))
    loud = Scores("loud", np.ones(500), np.zeros(500), 0.5)
    return audit_scores(loud, delta=1e-5, trials="records", relation="add_remove"), accountant("pld")(ledger)


def test_results_reports_and_curves_compare_with_a_claim():
    found, claim = parts()
    assert not found <= claim
    assert not found.tradeoff <= claim
    assert not Report(1e-5, results=[found]) <= claim
    assert Report(1e-5, results=[]) <= claim


@pytest.mark.parametrize("claim", [1.0, None, "epsilon 2", [1, 2]])
def test_what_is_no_claim_gets_a_sentence(claim):
    found, _ = parts()
    for audit in (found, Report(1e-5, results=[found])):
        with pytest.raises(InvalidInput, match="claim must be a TradeOff; got"):
            audit <= claim  # noqa: B015
