import json
import math
import re

import numpy as np
import pytest

from tacit.accounting import Account, Ledger, account
from tacit.accounting.registry import ask
from tacit.attacks import LossThreshold
from tacit.audit import ESTIMATORS, audit_scores
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian, Menu
from tacit.relation import Relation
from tacit.reports import Card, card_table, write_card
from tacit.reports.card import card_markdown
from tacit.standing import Standing
from tacit.tradeoff import EpsilonCurve, GaussianCurve, TradeOff

DELTA = 1e-5
KEYS = {
    *("dataset", "model", "method", "metrics", "guarantees", "audits", "mechanisms", "ledger_hash", "unsafe"),
    *("versions", "wall_seconds"),
}
GUARANTEE = {"accountant", "standing", "relation", "delta", "epsilon", "epsilon_lower", "mu", "advantage"}
AUDIT = {"attack", "confidence", "advantage", "ppv", "epsilon_lower", "mu_lower"}


def a_ledger():
    ledger = Ledger()
    ledger.add(Gaussian(4.0), 4, "training")
    return ledger


def result(mu, standing=Standing.PROVEN, source="exact", floor=None):
    curve = GaussianCurve(mu)
    return ask(TradeOff(curve, standing, Relation.ADD_REMOVE, source, floor=floor), delta=DELTA)


def audit(mu=0.0, estimator="band", size=400, **settings):
    draw = np.random.default_rng(0)
    members, others = draw.normal(3, 1, size), draw.normal(3 + mu, 1, size)
    scores = LossThreshold().from_losses(members, others)
    return audit_scores(scores, delta=DELTA, estimator=estimator, **settings)


def a_card(**changes):
    ledger = changes.pop("ledger", None) or a_ledger()
    values = {
        "dataset": "digits",
        "model": "logistic regression",
        "method": "DP-SGD",
        "records": 1437,
        "metrics": {"test": 0.9, "nonprivate_test": 0.95},
        "account": Account((result(0.5, floor=GaussianCurve(0.499)),), ()),
        "ledger": ledger,
        "wall_seconds": 75.0,
        "audits": (audit(),),
        "training_curve": {"private": [0.5, 0.9], "nonprivate": [0.9, 0.95]},
        "settings": {"clip_norm": 1.0, "optimizer": "sgd"},
        "versions": {"tacit": "0.1.0"},
    }
    return Card(**(values | changes))


def html_of(tmp_path, **changes):
    return write_card(a_card(**changes), tmp_path).read_text(encoding="utf-8")


def table_of(tmp_path, **changes):
    write_card(a_card(**changes), tmp_path)
    refuse = pytest.fail
    return json.loads((tmp_path / "card.json").read_text(encoding="utf-8"), parse_constant=refuse)


def test_json_holds_the_promised_keys(tmp_path):
    table = table_of(tmp_path)
    assert table.keys() >= KEYS
    assert all(row.keys() >= GUARANTEE for row in table["guarantees"])
    assert all(row.keys() >= AUDIT for row in table["audits"])
    assert table["metrics"] == {"test": 0.9, "nonprivate_test": 0.95}
    assert table["unsafe"] == []
    assert table["ledger_hash"] == a_ledger().hash
    assert table["guarantees"][0]["epsilon"] == pytest.approx(GaussianCurve(0.5).epsilon(DELTA))
    assert table["guarantees"][0]["epsilon_lower"] == pytest.approx(GaussianCurve(0.499).epsilon(DELTA))
    assert table["audits"][0]["refutes"] == []


def test_the_json_is_the_table_and_its_mechanisms_are_a_spec(tmp_path):
    card = a_card()
    write_card(card, tmp_path)
    assert json.loads((tmp_path / "card.json").read_text()) == json.loads(json.dumps(card_table(card)))
    spec = {"relation": "add_remove", "mechanisms": [row | {"hash": None} for row in card_table(card)["mechanisms"]]}
    assert Ledger.from_spec(spec).mechanism == a_ledger().mechanism


def test_one_sided_accountants_have_no_lower_epsilon_and_infinity_is_spelled(tmp_path):
    endless = TradeOff(EpsilonCurve(lambda delta: math.inf), Standing.PROVEN, Relation.ADD_REMOVE, "broken")
    answers = Account((ask(endless, delta=DELTA), result(0.5), result(0.3, Standing.ASYMPTOTIC, "clt")), ())
    rows = table_of(tmp_path, account=answers)["guarantees"]
    assert [row["epsilon_lower"] for row in rows] == [None, None, None]
    assert rows[0]["epsilon"] == "inf"
    assert "∞" in (tmp_path / "card.html").read_text(encoding="utf-8")


def test_an_infinite_epsilon_is_no_guarantee(tmp_path):
    endless = TradeOff(EpsilonCurve(lambda delta: math.inf), Standing.PROVEN, Relation.ADD_REMOVE, "broken")
    assert "No guarantee: the proven epsilon is infinite" in html_of(
        tmp_path, account=Account((ask(endless, delta=DELTA),), ())
    )


def test_the_page_loads_nothing_and_runs_nothing(tmp_path):
    html = html_of(tmp_path)
    assert "http://" not in html
    assert "https://" not in html
    assert not re.search(r"<(script|link|img|iframe|object|embed|base)\b|@import|url\((?!#)|\bsrc=", html)
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', html))
    assert "default-src 'none'" in html


def test_the_two_figures_share_no_ids(tmp_path):
    ids = re.findall(r'\bid="([^"]+)"', html_of(tmp_path))
    assert ids
    assert len(ids) == len(set(ids))


def test_every_colour_follows_the_page(tmp_path):
    html = html_of(tmp_path)
    drawn = "".join(re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL))
    assert not re.findall(r"#[0-9a-fA-F]{6}\b", drawn)
    used, defined = set(re.findall(r"var\(--(\w+)\)", html)), set(re.findall(r"--(\w+):", html))
    assert used <= defined
    assert "prefers-color-scheme: dark" in html


def test_strings_are_escaped(tmp_path):
    bad = '<script>alert("x")</script>$\\frac'
    ledger = a_ledger()
    ledger.assume(bad)
    ledger.mark_unsafe(bad)
    html = html_of(
        tmp_path,
        **dict.fromkeys(("dataset", "model", "method", "title"), bad),
        ledger=ledger,
        account=Account((result(0.5, source=bad),), ((bad, bad),)),
        settings={bad: bad},
        versions={bad: bad},
    )
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 11


def test_neither_losses_nor_seeds_reach_the_card(tmp_path):
    losses = np.random.default_rng(0).gamma(2, 1, 60)
    scores = LossThreshold().from_losses(losses[:30], losses[30:])
    write_card(a_card(audits=(audit_scores(scores, delta=DELTA),)), tmp_path)
    text = (tmp_path / "card.html").read_text(encoding="utf-8") + (tmp_path / "card.json").read_text()
    assert not [loss for loss in losses if repr(float(loss))[:9] in text]
    assert repr(float(losses[:30].mean()))[:9] not in text
    with pytest.raises(InvalidInput, match="free of seeds"):
        a_card(settings={"noise_seed": 3})
    with pytest.raises(InvalidInput, match="single value"):
        a_card(settings={"weights": np.ones(3)})


def test_unsafe_switches_stand_before_the_headline(tmp_path):
    ledger = a_ledger()
    ledger.mark_unsafe("unsafe_fixed_batches", Standing.CLAIMED)
    html = html_of(tmp_path, ledger=ledger, account=account(ledger, delta=DELTA))
    assert html.index("Unsafe switches") < html.index("unsafe_fixed_batches") < html.index("No proven guarantee")
    assert "Whoever studies this model" not in html
    assert table_of(tmp_path, ledger=ledger)["unsafe"] == ["unsafe_fixed_batches"]


def test_an_attack_that_beats_a_proof_raises_the_alarm(tmp_path):
    leaky = audit(3.0, trials="independent")
    assert table_of(tmp_path, audits=(leaky,))["audits"][0]["refutes"] == ["exact"]
    html = html_of(tmp_path, audits=(leaky,))
    assert "did better than a proven bound allows" in html
    assert "refutes exact (proven)" in html
    assert "did better than a proven bound" not in html_of(tmp_path)


def test_statistics_without_a_privacy_cost_stand_in_the_headline(tmp_path):
    assert "without a privacy cost" not in html_of(tmp_path)
    html = html_of(tmp_path, leaks=("the vocabulary",))
    headline = html[html.index('<section class="headline') :]
    assert "without a privacy cost: the vocabulary." in headline[: headline.index("</section>")]
    assert table_of(tmp_path, leaks=("the vocabulary",))["leaks"] == ["the vocabulary"]


def test_refusals_and_assumptions_are_told(tmp_path):
    ledger = a_ledger()
    ledger.assume("No person appears twice.")
    html = html_of(tmp_path, ledger=ledger, account=Account((result(0.5),), (("zcdp", "no parameter is known"),)))
    assert "No person appears twice." in html
    assert "no parameter is known" in html
    assert table_of(tmp_path, account=Account((), (("zcdp", "why"),)))["refused"] == [
        {"accountant": "zcdp", "why": "why"}
    ]
    assert "no accountant applies" in (tmp_path / "card.html").read_text(encoding="utf-8")


@pytest.mark.slow_cases
@pytest.mark.parametrize("standing", [s for s in Standing if s is not Standing.MEASURED])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_standing_and_estimator_draws(tmp_path, standing, estimator):
    answers = Account((result(0.5, standing), result(0.7, standing, "second")), ())
    html = html_of(tmp_path, account=answers, audits=(audit(0.2, estimator),))
    assert f'class="badge {standing.value}"' in html
    assert f"stroke: var(--{standing.value})" in html
    assert "fill: var(--measured)" in html
    assert ("no attack gets here" in html) == (standing is Standing.PROVEN)


def test_the_least_possible_card(tmp_path):
    html = html_of(
        tmp_path,
        metrics={"test": None},
        audits=(),
        training_curve={},
        settings={},
        versions={},
        account=Account((), ()),
        ledger=Ledger(),
    )
    assert "No attack was run" in html
    assert table_of(tmp_path, metrics={"test": None})["metrics"] == {"test": None, "nonprivate_test": None}


def test_a_page_that_fails_leaves_the_last_card(tmp_path, monkeypatch):
    before = html_of(tmp_path), (tmp_path / "card.json").read_text()

    def fail(card):
        raise RuntimeError("drawing failed")

    monkeypatch.setattr("tacit.reports.card.page", fail)
    with pytest.raises(RuntimeError):
        write_card(a_card(dataset="other"), tmp_path)
    assert before == ((tmp_path / "card.html").read_text(encoding="utf-8"), (tmp_path / "card.json").read_text())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["card.html", "card.json"]


def test_the_same_card_gives_the_same_bytes(tmp_path):
    assert html_of(tmp_path) == html_of(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"records": 0}, "records must be"),
        ({"wall_seconds": math.nan}, "wall_seconds must be"),
        ({"metrics": {}}, "the key test"),
        ({"training_curve": {"privat": [0.1]}}, "Did you mean 'private'"),
    ],
)
def test_bad_cards_are_refused(change, said):
    with pytest.raises(InvalidInput, match=said):
        a_card(**change)


@pytest.mark.parametrize("scope", ["fixed", "menu"])
def test_the_card_states_for_which_choices_its_number_holds(tmp_path, scope):
    step = Gaussian(2.0)
    ledger = Ledger.of(Menu.of([step, step * 2]) if scope == "menu" else step)
    table, page = table_of(tmp_path, ledger=ledger), html_of(tmp_path, ledger=ledger)
    assert table["scope"] == scope
    for text in (page, card_markdown(table)):
        assert f"{scope}: " in text
    del table["scope"]  # a card from before there were scopes
    assert "not stated on the card" in card_markdown(table)
