import io
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tacit.accounting import Account, Fact, How, Ledger, account, exact_steps
from tacit.accounting.registry import ask
from tacit.mechanisms import Gaussian
from tacit.relation import Relation
from tacit.reports import account_table, audit_table, words
from tacit.standing import Standing
from tacit.tradeoff import GaussianCurve, TradeOff
from tests.reports.test_card import audit


def result(mu, standing, source):
    return ask(TradeOff(GaussianCurve(mu), standing, Relation.ADD_REMOVE, source), delta=1e-5)


def test_what_several_verdicts_are_worth_at_once():
    assert words.together([0.95]) is None
    assert "with 3 of them, the chance of a false alarm is up to 11.0 %" in words.together([0.95, 0.95, 0.99])
    assert "up to 100.0 %" in words.together([0.5] * 3)


def test_a_verdict_over_all_tests_has_no_chance_of_a_false_alarm_beside_it_that_is_another():
    assert "99.9 % over all" in words.together([0.95] * 4, jointly=True)
    assert "20" not in words.together([0.95] * 4, jointly=True)


@given(st.floats(1e-12, 1e9))
@settings(max_examples=100)
def test_bounds_round_to_the_safe_side(value):
    assert value <= float(words.upward(value)) <= value * 1.001
    assert value * 0.999 <= float(words.downward(value)) <= value
    assert float(words.nearest(value)) == pytest.approx(value, rel=5.1e-4)


def test_numbers_that_are_not_numbers():
    assert (words.upward(math.inf), words.downward(-math.inf), words.nearest(None)) == ("∞", "−∞", "–")
    assert words.upward(0.0) == "0"


@given(st.floats(0, 1))
@settings(max_examples=50)
def test_percentages_of_a_bound_never_shrink(value):
    assert float(words.percent_upward(value).removesuffix(" %")) >= 100 * value - 1e-6


def test_durations():
    assert [words.duration(s) for s in (0.42, 61.0, 3725.0)] == ["0.4 s", "1 min 1 s", "1 h 2 min"]


def test_the_headline_reads_the_tightest_proven_bound():
    answers = [
        result(0.1, Standing.CLAIMED, "wish"),
        result(0.9, Standing.PROVEN, "loose"),
        result(0.5, Standing.PROVEN, "exact"),
    ]
    sentence, detail = words.headline(answers, "patient")
    reached = 100 * float(answers[2].tradeoff.tpr(0.05))
    assert f"at most {math.ceil(reached * 10) / 10} %" in sentence
    assert "every other patient" in sentence
    assert "by the accountant exact" in detail
    assert "≤" in detail


def test_of_a_seeded_run_no_refuted_formula_comes_first():
    answers = [
        result(mu, Standing.CLAIMED, name) for mu, name in ((0.1, "naive_jayaraman_evans"), (0.3, "clt"), (0.5, "pld"))
    ]
    assert [each.tradeoff.source for each in words.by_trust(answers)] == ["pld", "clt", "naive_jayaraman_evans"]


def test_without_a_proof_the_headline_promises_nothing():
    sentence, detail = words.headline([result(0.1, Standing.CLAIMED, "wish")], "record")
    assert sentence.startswith("No proven guarantee")
    assert words.NOT_A_BOUND in detail
    assert "≤" not in detail
    assert words.headline([], "record")[0].startswith("No guarantee")


def test_what_was_read_unpaid_is_said_in_a_sentence():
    assert words.reserve(()) == ""
    assert words.reserve(["bounds of a", "classes"]).endswith("without a privacy cost: bounds of a; classes.")


def _printed(table):
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    return console.file.getvalue()


def test_terminal_tables_print_the_standing_beside_the_number():
    ledger = Ledger.of(Gaussian(2.0).poisson(0.1) * 50)
    answer = account(ledger, delta=1e-5)
    text = _printed(account_table(Account(answer.results, (*answer.refused, ("[bold]", "[red]because")))))
    for each in answer.results:
        line = next(line for line in text.splitlines() if line.split()[:1] == [each.tradeoff.source])
        assert each.tradeoff.standing.value in line
        assert words.leakage(each.epsilon, each.tradeoff.standing) in line
    assert words.NOT_A_BOUND in text
    assert "[bold] does not apply: [red]because" in text


def test_terminal_table_of_audits():
    found = audit(1.0)
    text = _printed(audit_table([found]))
    assert "loss_threshold" in text
    assert words.downward(found.epsilon_lower, 3) in text
    assert words.upward(found.detectable_epsilon, 3) in text


def test_of_training_the_allowance_for_rounding_is_said():
    ledger = Ledger()
    assert words.rounding_of(ledger) == ""
    ledger.begin(exact_steps(0.0006))
    assert "nu = 0.06%" in words.rounding_of(ledger)
    assert "it takes IEEE arithmetic" in words.rounding_of(ledger)


def test_nothing_is_assumed_only_where_no_sentence_is_either():
    ledger = Ledger()
    assert dict(words.known_by_kind(ledger.facts))["assumed"] == "nothing"
    sentences = ["n is public.", "No person appears twice."]
    told = dict(words.known_by_kind(ledger.facts, [*sentences, "Taken as public: a table"]))
    assert told["assumed"] == "Taken as public: a table; 2 sentences under Assumptions"
    assert dict(words.known_by_kind(ledger.facts, sentences))["assumed"] == "no fact; 2 sentences under Assumptions"


def test_declarations_stand_in_their_own_words():
    ledger = Ledger()
    ledger.begin(Fact("unit", How.DECLARED, says="one row is one patient"), Fact("batches", How.ENFORCED))
    told = dict(words.known_by_kind(ledger.facts))
    assert told == {
        "verified": "1 fact enforced or checked: batches",
        "declared": "one row is one patient",
        "assumed": "nothing",
    }


@pytest.mark.parametrize(
    ("power", "told", "red"),
    [
        ({}, "what it finds in broken copies could not be measured: one more training, up to 32.0 s.", False),
        (
            {"plain": 0.5},
            "in a copy plain it finds ε ≥ 0.5; what it finds in a further broken copy could not be measured: one more "
            "training, up to 32.0 s. It could not have refuted the claim.",
            True,
        ),
        (
            {"plain": 9.0, "leaky": 8.0},
            "in a copy plain it finds ε ≥ 9; in a copy leaky it finds ε ≥ 8. It could have refuted the claim.",
            False,
        ),
    ],
)
def test_the_power_of_an_attack_is_a_number_or_the_time_that_it_would_take(power, told, red):
    found = audit(0.0)
    results = account(Ledger.of(Gaussian(4.0)), delta=1e-5, accountants=["pld"]).results
    assert words.powers([found], {found.attack: power}, results, 32.0) == [(f"{found.attack}: {told}", red)]
