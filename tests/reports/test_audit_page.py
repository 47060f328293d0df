import json
from dataclasses import replace

import numpy as np
import pytest

from tacit.attacks import Overlap, Scores
from tacit.audit import Report, audit_one_run_curve, audit_scores
from tacit.relation import Relation
from tacit.reports import audit_table_of, write_audit
from tacit.standing import Standing
from tacit.tradeoff import GaussianCurve, TradeOff

OVERLAPS = {"loss_threshold": [Overlap(0, 10, 20, 0.5, 1.0), Overlap(1, 5, 2, 0.8, 0.5)]}


def scores(mu, size=500):
    draw = np.random.default_rng(0)
    return Scores("loss_threshold", draw.normal(mu, 1, size), draw.normal(0, 1, size), mu / 2)


def report(mu=1.0, claimed=2.0, **changes):
    claim = None if claimed is None else TradeOff(GaussianCurve(claimed), Standing.PROVEN, Relation.ADD_REMOVE, "pld")
    result = audit_scores(scores(mu), delta=1e-5, trials="independent", claim=claim)
    finding = audit_one_run_curve(scores(mu), delta=1e-5, claim=claim)
    return Report(**({"delta": 1e-5, "results": [result], "findings": [finding], "claim": claim} | changes))


def test_the_page_is_self_contained(tmp_path):
    path = write_audit(report(overlaps=OVERLAPS), tmp_path, title="<run>")
    html = path.read_text()
    assert "<script" not in html
    assert "&lt;run&gt;" in html
    assert "src=" not in html
    assert html.count("<svg") == 2
    assert html.count(" runs</td>") == len(OVERLAPS["loss_threshold"])
    assert "an advantage of at most 0.683" in html
    assert "consistent with the claim" in html
    assert {each.name for each in tmp_path.iterdir()} == {"audit.html", "audit.json"}


def test_a_refuted_claim_is_said_in_red(tmp_path):
    html = write_audit(report(mu=3.0, claimed=0.5), tmp_path, title="run").read_text()
    assert html.count('class="bad">refutes the claim') == 2
    rows = json.loads((tmp_path / "audit.json").read_text())["audits"]
    assert [row["refuted"] for row in rows] == [True, True]


def test_verdicts_are_counted_together_and_a_posterior_gives_none(tmp_path):
    assert "chance of a false alarm is up to 10.0 %" in write_audit(report(), tmp_path, title="run").read_text()
    posterior = replace(report().findings[0], refuted=None)
    html = write_audit(report(findings=[posterior]), tmp_path, title="run").read_text()
    assert "Every verdict" not in html


def test_without_a_claim_there_is_no_verdict(tmp_path):
    html = write_audit(report(claimed=None, findings=[]), tmp_path, title="run").read_text()
    assert "Every verdict" not in html
    assert "refutes the claim" not in html
    assert "consistent with the claim" not in html
    assert json.loads((tmp_path / "audit.json").read_text())["claim"] is None


@pytest.mark.parametrize("mu", [0.0, 0.5, 50.0, 1e9])
def test_the_bounds_on_the_advantage_are_ordered(mu):
    claim = audit_table_of(report(claimed=mu))["claim"]
    assert claim["advantage"] <= claim["approximate_bound"] + 1e-9
    assert claim["gaussian_bound"] == pytest.approx(claim["advantage"], abs=1e-6)


def test_rows_keep_the_contract_of_the_card():
    rows = audit_table_of(report())["audits"]
    contract = {"attack", "confidence", "advantage", "ppv", "epsilon_lower", "mu_lower"}
    assert all(row.keys() >= contract | {"statement", "refuted"} for row in rows)
    assert rows[1]["advantage"] is None
