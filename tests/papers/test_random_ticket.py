"""Table 2's two columns on the same tickets: exact averages over either draw."""

import math

import pytest

from tacit.relation import Relation
from tacit.tickets import paper_scores
from tacit_papers.lottery_ticket import margins
from tacit_papers.lottery_ticket.margins import RANDOM_TICKET as ITEM
from tacit_papers.lottery_ticket.margins import every_ticket
from tacit_papers.lottery_ticket.mechanism import explain

FOUND = {
    "densities": [0.7, 0.5],
    "accuracies": [0.9, 0.9],
    "probabilities": [0.6, 0.4],
    "tests": [0.5, 0.8],
}


def rows_of(values):
    missing = [None] * (len(ITEM.tasks("full")) - len(values))
    return {row.quantity: row for row in ITEM.rows("full", [*values, *missing])}


def test_a_draw_gives_the_mean_weighted_by_its_probabilities():
    rows = rows_of([FOUND, FOUND | {"probabilities": [0.5, 0.5]}])
    start = "har, epsilon 0.2, "
    chosen, uniform = (
        rows[f"{start}Algorithm 1's ticket: test accuracy %"],
        rows[f"{start}uniformly drawn ticket: test accuracy %"],
    )
    assert (chosen.ours, uniform.ours, chosen.repeats) == (pytest.approx(63.5), pytest.approx(65.0), 2)
    ahead = rows[f"{start}points that Algorithm 1's ticket is ahead (published value derived)"]
    assert (ahead.ours, ahead.published, ahead.passed) == (pytest.approx(-1.5), 5.0, None)
    assert rows[f"{start}Algorithm 1's choice: distance from a uniform draw"].ours == pytest.approx(0.1)


def test_what_has_not_run_has_no_number():
    assert {row.ours for row in rows_of([]).values()} == {None}
    assert ITEM.tasks("quick") == ITEM.rows("quick", []) == []


def test_ten_repeats_each_with_a_search_of_its_own():
    seeds = [task.settings["seed"] for task in ITEM.tasks("full") if task.settings["dataset"] == "isolet"]
    assert seeds == list(range(10))


def test_the_lead_of_other_records_is_shown_and_not_compared():
    lead = rows_of([])["kmnist, epsilon 0.2, points that Algorithm 1's ticket is ahead (published value derived)"]
    assert (lead.published, lead.tolerance) == (6.0, None)


def test_the_choice_moves_the_average_by_at_most_its_distance_times_the_range():
    """|E_P f - E_Q f| <= TV(P, Q) (max f - min f), the bound that the page's conclusion rests on."""
    moved = abs(margins._expected(FOUND) - sum(FOUND["tests"]) / 2)
    assert moved <= margins._distance(FOUND) * (max(FOUND["tests"]) - min(FOUND["tests"])) + 1e-12


@pytest.mark.parametrize("first", [0.0, 0.3, 0.5])
def test_no_tickets_make_the_choice_differ_more_from_a_uniform_draw_than_the_bound_of_the_page(first):
    """tanh(eps_1 nu / (8 |1 - nu|)): scores that are spread over the whole range, half at either end at worst."""
    densities = [1.0] * int(20 * first) + [0.0] * (20 - int(20 * first))
    scores = paper_scores([1.0] * 20, densities)
    chances = explain(scores, densities, 0.02, Relation.REPLACE_ONE).probabilities.tolist()
    distance = margins._distance({"probabilities": chances})
    bound = math.tanh(0.02 * 50 / (8 * 49))
    assert 100 * bound == pytest.approx(0.255, abs=5e-4)
    assert distance <= bound * (1 + 1e-9)
    assert first != 0.5 or distance == pytest.approx(bound, rel=1e-5)


@pytest.mark.slow
def test_one_search_gives_every_ticket_a_training(original_files):
    found = every_ticket("har", 0.2, 0, rounds=2, iterations=20, epochs=1, data_dir=original_files)
    assert len(found["tests"]) == len(found["probabilities"]) == len(found["densities"]) == 2
    assert sum(found["probabilities"]) == pytest.approx(1.0)
    assert all(0.0 <= test <= 1.0 for test in found["tests"])
