"""Scopes of a data set: filters admit runs whatever they followed, odometers bound the loss that happened."""

from pathlib import Path

import numpy as np
import pytest

from tacit import BudgetExceeded, Epsilon, InvalidInput
from tacit.accounting import Ledger, accountant
from tacit.accounting.facts import Fact, How
from tacit.accounting.filters import Odometer
from tacit.budget import Registry, Scope
from tacit.budget.totals import LOOKED, export_text, odometer_in_words, spent_in_words
from tacit.mechanisms import Gaussian, Laplace, TruncatedPoisson
from tacit.relation import Relation
from tacit.standing import Standing

BUDGET = Epsilon(2.0, 1e-5)
STEP = Gaussian(2.0).poisson(0.1)


def declared(tmp_path: Path, scope: Scope | str):
    return Registry.create(tmp_path / "budget.sqlite").declare("patients", scope=scope)


def refusal_of(dataset, mechanism) -> str:
    try:
        dataset.reserve(mechanism)
    except BudgetExceeded as error:
        return str(error)
    return ""


def cases():
    yield Scope("renyi", BUDGET, STEP * 100), STEP, 25
    yield Scope("renyi", BUDGET), Gaussian(10.0), 4
    yield Scope("gaussian", BUDGET), Gaussian(10.0), 3
    yield Scope("zcdp", BUDGET), Gaussian(10.0), 3
    yield Scope("pure", Epsilon(2.0, 0.0)), Laplace(10.0), 3


@pytest.mark.parametrize(("scope", "query", "each"), list(cases()), ids=lambda value: getattr(value, "kind", ""))
def test_a_filter_admits_runs_until_its_budget_is_spent_and_keeps_the_total_proven(tmp_path, scope, query, each):
    dataset = declared(tmp_path, scope)
    made = 0
    while not (refused := refusal_of(dataset, query * each)):
        made += 1
    assert "'patients' must be admitted by the filter" in refused
    assert "Left" in refused or "Nothing is left" in refused
    assert made > 1
    assert dataset.spent().standing is Standing.PROVEN
    assert LOOKED not in dataset.total().assumptions
    assert dataset.total().scope == scope.says
    assert list(dataset.known.caps.values()) == [scope.budget]
    assert dataset.spent().epsilon(scope.budget.delta) == pytest.approx(scope.budget.epsilon, rel=1e-6)
    # What ran costs no more than the filter's budget by the exact accountant.
    ran = accountant("pld")(query * (each * made))
    assert ran.epsilon(scope.budget.delta) <= scope.budget.epsilon
    assert scope.says in spent_in_words(dataset.known)
    again = Registry(tmp_path / "budget.sqlite").dataset("patients")
    assert again.known.scope == dataset.known.scope
    for form in ("json", "csv"):
        assert scope.says in export_text([(again.known, again.history())], form)


TRUNCATED = [
    TruncatedPoisson(Gaussian(2.0), 0.1, 100, 5),  # Most samples are full.
    TruncatedPoisson(Gaussian(4.0), 1.0, 50, 20),
    TruncatedPoisson(Gaussian(1.0), 0.01, 1000, 11),
]


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("query", TRUNCATED, ids=str)
@pytest.mark.parametrize("kind", ["renyi", "zcdp"])
def test_a_filter_prices_samples_cut_at_a_cap_no_lower_than_the_exact_accountant(tmp_path, kind, query, relation):
    """A further record pushes another one out of a full sample, which plain Poisson sampling would not count."""
    budget = Epsilon(4.0, 1e-5)
    scope = Scope(kind, budget, query * 20 if kind == "renyi" else None)
    dataset = Registry.create(tmp_path / "budget.sqlite").declare("patients", relation=relation, scope=scope)
    made = 0
    while not refusal_of(dataset, query * 2 ** max(made.bit_length() - 2, 0)):
        made += 2 ** max(made.bit_length() - 2, 0)
    if made:
        assert accountant("pld")(query * made, relation=relation).epsilon(budget.delta).upper <= budget.epsilon


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("query", TRUNCATED, ids=str)
def test_an_odometer_prices_samples_cut_at_a_cap_no_lower_than_the_exact_accountant(query, relation):
    delta = 1e-5
    odometer = Odometer(8.0, relation=relation)
    odometer.charge(query, 10)
    exact = accountant("pld")(query * 10, relation=relation).epsilon(delta)
    assert odometer.bound(delta).bound >= exact.upper
    plain = query.base.poisson(query.sample_rate)
    for order in (1.5, 8.0, 64.0):
        assert query.rdp(np.array([order]), relation) >= plain.rdp(np.array([order]), relation) * (1 - 1e-9)


def test_a_filter_covers_settings_that_followed_outputs_and_nothing_else(tmp_path):
    dataset = declared(tmp_path, Scope("gaussian", BUDGET))
    ledger = dataset.ledger("both")
    for noise in (10.0, 20.0):
        ledger.begin(Fact("batches", How.ENFORCED))
        ledger.add(Gaussian(noise))
    ledger.settle()
    assert ledger.standing is Standing.CONDITIONAL  # Its own number is that of the exact composition.
    assert dataset.spent().standing is Standing.PROVEN
    ledger.facts.missing("rows", "a row was made of two records")
    ledger.settle()
    assert dataset.spent().standing is Standing.CONDITIONAL


def test_the_budget_of_a_filter_cannot_be_changed(tmp_path):
    dataset = declared(tmp_path, Scope("gaussian", BUDGET))
    with pytest.raises(InvalidInput, match="cap"):
        dataset.cap(Epsilon(5.0, 1e-5))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "natural"},
        {"kind": "renyi"},
        {"kind": "adaptive", "budget": BUDGET},
        {"kind": "gaussian", "budget": BUDGET, "plan": STEP},
        {"kind": "fixed", "order": 8.0},
    ],
)
def test_a_scope_that_is_none_is_refused(wrong):
    with pytest.raises(InvalidInput):
        Scope(**wrong)


def test_an_odometer_bounds_what_happened_and_refuses_at_the_cap(tmp_path):
    dataset = declared(tmp_path, Scope("odometer", order=8.0))
    dataset.cap(Epsilon(2.0, 1e-5))
    dataset.reserve(Gaussian(10.0) * 4)
    assert "at most 1.805 at all times" in odometer_in_words(dataset.known)  # 4 * 8 / 200 + log(1e5) / 7
    with pytest.raises(BudgetExceeded):
        dataset.reserve(Gaussian(10.0) * 5)


def test_a_run_opened_first_that_goes_on_after_a_later_one_is_not_fixed(tmp_path):
    dataset = declared(tmp_path, "adaptive")
    first = dataset.ledger("opened first")
    dataset.reserve(Gaussian(4.0), scope="fixed")
    assert dataset.spent().standing is Standing.PROVEN
    first.add(Gaussian(4.0))
    assert dataset.spent().standing is Standing.CONDITIONAL


def test_two_runs_in_one_reservation_are_not_fixed(tmp_path):
    dataset = declared(tmp_path, "adaptive")
    ledger = dataset.ledger("two fits")
    for _ in range(2):
        ledger.begin(Fact("batches", How.ENFORCED))
        ledger.add(Gaussian(10.0))
    ledger.settle()
    assert dataset.spent().standing is Standing.CONDITIONAL


def test_settings_of_a_data_set_of_scope_fixed_are_declared(tmp_path):
    dataset = declared(tmp_path, "fixed")
    for _ in range(2):
        dataset.reserve(Gaussian(4.0))
    assert dataset.spent().standing is Standing.PROVEN
    assert Ledger(scope="fixed").assumptions[0] in dataset.total().assumptions
