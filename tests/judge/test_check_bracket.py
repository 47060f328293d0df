"""The judge of brackets confirms what is right, refutes what is off by 1e-6, and shares no code with the engines."""

import ast
import json
import threading
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.accounting import Account, Ledger, account, accountant
from tacit.accounting.pld.accountant import Pld
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.mechanisms import (
    Compose,
    DiscreteGaussian,
    Exponential,
    Gaussian,
    Laplace,
    Parallel,
    RandomizedResponse,
)

flint = pytest.importorskip("flint")
from tacit.judge import Verdict, check_bracket  # noqa: E402
from tacit.judge.bracket import _directions  # noqa: E402
from tacit.relation import Relation  # noqa: E402

SGD = Gaussian(1.1).poisson(0.01) * 500


def settings():
    """50 mechanisms with delta, relation and group: (mechanism, delta, relation, group)."""
    random = np.random.default_rng(38)
    found = []
    for _ in range(33):
        rate, sigma = 10 ** random.uniform(-3, np.log10(0.5)), random.uniform(0.7, 6.0)
        steps, delta = round(10 ** random.uniform(1.5, 6)), 10 ** random.uniform(-10, -3)
        found.append((Gaussian(sigma).poisson(rate) * steps, delta, "add_remove", 1))
    plain = [
        *(Gaussian(0.7) * 3, Gaussian(1.0) + Gaussian(30.0), Laplace(2.0), Laplace(3.0) * 10, Laplace(0.5) * 2),
        *(RandomizedResponse(0.3) * 50, RandomizedResponse(0.3).poisson(0.1) * 50, DiscreteGaussian(1.5) * 10),
        *(
            DiscreteGaussian(1.0).poisson(0.1) * 2,
            Laplace(1.0) * 3 + Laplace(2.7) * 5,
            Laplace(1.0) + DiscreteGaussian(2.0),
        ),
        SGD + Laplace(5.0) + RandomizedResponse(0.1) * 3,
        Compose.of(*((Gaussian(1 + step / 4).poisson(0.01 + step / 300), 100) for step in range(4))),
    ]
    found += [(mechanism, 1e-6, "add_remove", 1) for mechanism in plain]
    found += [(SGD, 1e-6, relation, 1) for relation in ("replace_one", "zero_out")]
    return [*found, (SGD, 1e-6, "add_remove", 2), (Laplace(9.0) * 4, 1e-6, "replace_one", 1)]


SETTINGS = settings()


def printed(mechanism, delta, relation, group):
    ledger = Ledger.of(mechanism, relation=relation)
    curve = Pld()(ledger) if group == 1 else Pld().grouped(ledger, group)
    return curve.epsilon(delta).interval


@pytest.fixture(scope="module")
def brackets():
    return [printed(*setting) for setting in SETTINGS]


def judged(setting, lower, upper):
    mechanism, delta, relation, group = setting
    return check_bracket(mechanism, delta, lower, upper, relation=relation, group=group)


def test_fifty_printed_brackets_are_confirmed(brackets):
    assert len(brackets) == 50
    found = {str(setting): judged(setting, *bracket) for setting, bracket in zip(SETTINGS, brackets, strict=True)}
    assert {name: checked for name, checked in found.items() if checked.verdict is not Verdict.CONFIRMED} == {}


def test_a_hundred_brackets_past_the_true_value_by_a_relative_1e_6_are_refuted(brackets):
    missed = []
    for setting, (lower, upper) in zip(SETTINGS, brackets, strict=True):
        assert lower > 0
        for low, high in ((0.0, lower * (1 - 1e-6)), (upper * (1 + 1e-6), np.inf)):  # The other end holds trivially.
            if judged(setting, low, high).verdict is not Verdict.REFUTED:
                missed.append((setting, low, high))
    assert missed == []


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"),
    [
        (0.46, 2e-4, 1, 1e-6),
        (0.53, 3.5e-4, 5, 3e-5),
        (2.4, 9e-5, 2, 1e-10),
        (0.9, 0.4, 2, 1e-5),
    ],
)
def test_few_rare_steps_are_decided_by_taking_the_usual_part_out(sigma, rate, steps, delta):
    setting = (Gaussian(sigma).poisson(rate) * steps, delta, "add_remove", 1)
    lower, upper = printed(*setting)
    assert judged(setting, lower, upper).verdict is Verdict.CONFIRMED
    assert judged(setting, upper * (1 + 1e-5), upper * 2).verdict is Verdict.REFUTED


def test_the_ends_zero_and_infinity_are_confirmed_trivially():
    rare = Gaussian(1.0).poisson(1e-5)
    found = check_bracket(rare, 1e-3, 0.0, 0.0)
    assert (found.verdict, found.enclosure_at_lower) == (Verdict.CONFIRMED, None)
    low, high = found.enclosure_at_upper
    assert low == pytest.approx(3.83e-6, rel=1e-2)
    assert low <= high < 1e-3
    assert check_bracket(rare * 20, 1e-3, 0.0, 0.0).verdict is Verdict.CONFIRMED
    assert check_bracket(Exponential(1.0), 1e-5, 0.0, np.inf).verdict is Verdict.CONFIRMED
    assert check_bracket(rare, 1e-10, 0.0, 0.0).verdict is Verdict.REFUTED


def test_what_is_out_of_reach_is_not_decided_with_its_reason():
    for mechanism, reason in (
        (Exponential(0.3) * 20, "no rule"),
        (DiscreteGaussian(1.0).poisson(0.1) * 100, "off any lattice"),
        (Laplace(20.0) * 5000, "too many terms"),
    ):
        found = check_bracket(mechanism, 1e-5, 0.5, 0.6)
        assert found.verdict is Verdict.NOT_DECIDED
        assert reason in found.reason
    assert check_bracket(Laplace(1.0), 0.0, 0.5, 1.0).reason == "delta is 0"


@pytest.mark.parametrize(
    ("mechanism", "delta", "lower", "upper"),
    [
        (Gaussian(1e-3).poisson(0.01) * 10, 1e-5, 1.0, 2.0),
        (Gaussian(1.0).poisson(1e-300) * 3, 1e-5, 1e-9, 1e-5),
        (Gaussian(1.0).poisson(0.01) * 10**15, 1e-5, 1.0, 2.0),
        (Gaussian(1.0).poisson(0.01) * 10, 1e-300, 1.0, 2.0),
        (Gaussian(1e-12), 1e-5, 1.0, 1e300),
        (DiscreteGaussian(1e4), 1e-5, 0.0, 2.0),
        (Gaussian(0.0, unsafe_no_noise=True), 1e-5, 1.0, 2.0),
    ],
    ids=str,
)
def test_ends_of_ranges_are_never_confirmed_by_accident(mechanism, delta, lower, upper):
    found = check_bracket(mechanism, delta, lower, upper)
    assert found.verdict is not Verdict.CONFIRMED
    assert found.verdict is Verdict.REFUTED or found.reason


def test_a_cut_steeper_than_the_estimates_grid_is_decided():
    step = Gaussian(0.5439152434646348).poisson(0.0002166024107398298)
    lower, upper = 0.002930190297126362, 0.0029301911171880526
    assert check_bracket(step * 21, 0.00068499133089575, lower, upper).verdict is Verdict.CONFIRMED


def test_the_worst_branch_of_disjoint_parts_counts():
    both = Parallel.of(Gaussian(1.0), Gaussian(2.0))
    lower, upper = Pld()(Ledger.of(both)).epsilon(1e-5).interval
    assert check_bracket(both, 1e-5, lower, upper).verdict is Verdict.CONFIRMED
    assert len(_directions(both, Relation.ADD_REMOVE, 1)) == 2


@pytest.mark.parametrize(
    ("lower", "upper", "delta"),
    [(-1.0, 1.0, 0.1), (2.0, 1.0, 0.1), (np.nan, 1.0, 0.1), (0.0, np.nan, 0.1), (0.0, 1.0, 2.0)],
)
def test_arguments_that_break_their_rules_are_refused(lower, upper, delta):
    with pytest.raises(InvalidInput):
        check_bracket(SGD, delta, lower, upper)


def test_threads_agree_and_leave_the_precision_as_it_was():
    before, found = flint.ctx.prec, []
    lower, upper = printed(SGD, 1e-5, "add_remove", 1)
    threads = [
        threading.Thread(target=lambda: found.append(check_bracket(SGD, 1e-5, lower, upper).row())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(row == found[0] for row in found)
    assert flint.ctx.prec == before


def test_the_judge_imports_nothing_of_the_accountant():
    for path in (Path(tacit.__file__).parent / "judge").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any("accounting" in name or "mechanisms.pairs" in name for name in names), path


ASKED = ["account", "--noise-multiplier", "1.1", "--sample-rate", "0.01", "--steps", "500", "--accountant", "pld"]


def test_the_command_prints_the_verdict_and_both_enclosures(capsys):
    assert main([*ASKED, "--check", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert set(table["checked"]) == {"verdict", "delta_at_upper", "delta_at_lower"}
    assert table["checked"]["verdict"] == "confirmed"
    assert table["checked"]["delta_at_upper"][1] <= 1e-5 <= table["checked"]["delta_at_lower"][0]
    assert main([*ASKED, "--check"]) == 0
    assert "confirmed by ball arithmetic" in " ".join(capsys.readouterr().out.split())
    assert main([*ASKED, "--check", "--epsilon", "1"]) == 2


def test_a_refuted_bracket_is_withheld_with_exit_code_3(capsys, monkeypatch):
    true = Pld.curves
    monkeypatch.setattr(Pld, "curves", lambda self, mechanism, relation: true(self, Gaussian(2.0), relation))
    assert main([*ASKED, "--check", "--json"]) == 3
    found = capsys.readouterr()
    table = json.loads(found.out)
    assert table["results"] == []
    assert table["checked"]["verdict"] == "refuted"
    assert "please report" in found.err
    assert "please report" in table["refused"][0]["why"]


def test_an_account_without_a_bracket_is_not_decided():
    found = account(Ledger.of(SGD), delta=1e-5, accountants=["rdp"], check_brackets=True)
    assert isinstance(found, Account)
    assert found.checked is not None
    assert found.checked.verdict is Verdict.NOT_DECIDED
    assert account(Ledger.of(SGD), delta=1e-5, accountants=["rdp"]).checked is None
    assert accountant("pld").name == "pld"
