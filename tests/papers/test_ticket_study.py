"""The study of tickets: what is run, rows and figures from what has run so far, and settings of the variants."""

import pytest

from tacit.errors import InvalidInput
from tacit_papers.lottery_ticket import margins, study
from tacit_papers.lottery_ticket.study import CORE, DENSE, PAPER, VARIANTS, settings_of
from tacit_papers.reproduce import items_of


def values(size="full", missing=()):
    """A run of accuracy .5 + .1 seed for every task but those numbered in `missing`."""
    found = [{"test": [0.1, 0.5 + 0.1 * task.settings["seed"]]} for task in study.tasks("mnist", size)]
    return [None if place in missing else value for place, value in enumerate(found)]


def test_three_repeats_of_everything_that_matters_at_both_ends():
    full = [cell for cell in study.cells("full") if cell.epsilon in (1.0, 0.2) and cell.variant in CORE]
    assert len(full) == 2 * len(CORE)
    assert {cell.repeats for cell in full} == {3}
    assert len(study.tasks("isolet", "full")) == sum(cell.repeats for cell in study.cells("full"))
    assert {cell.epsilon for cell in study.cells("full")} == {1.0, 0.5, 0.25, 0.2, None}


def test_rows_are_means_beside_the_published_values():
    rows = {row.quantity: row for row in study.rows("mnist", "full", values())}
    winning = rows["epsilon 0.2, paper mode (claimed): test accuracy %"]
    assert (winning.published, winning.ours, winning.repeats) == (84.0, 60.0, 3)
    assert rows["epsilon 0.2, T1, random mask: test accuracy %"].published == 79.0
    assert rows["epsilon 1, T1, random mask: test accuracy %"].published is None
    assert rows["epsilon 0.2, dense, tuned: standard deviation"].ours == 10.0
    assert rows["epsilon 0.2, T1, random mask: points ahead of the dense network"].ours == pytest.approx(
        rows["epsilon 0.2, T1, random mask: test accuracy %"].ours
        - rows["epsilon 0.2, dense, the paper's settings: test accuracy %"].ours
    )
    assert len(rows) <= 60  # a page shows so many


def test_numbers_of_other_records_are_not_compared():
    def winning(dataset):
        rows = {row.quantity: row for row in study.rows(dataset, "full", values())}
        row = rows[f"epsilon 0.2, {PAPER}: test accuracy %"]
        return row.published, row.tolerance

    assert winning("mnist") == (84.0, 3.0)
    assert winning("kmnist") == (60.0, None)
    assert winning("har") == (61.0, None)


def test_leads_are_averages_over_what_has_run_at_the_end_and_where_three_tenths_are_spent():
    cells = margins._runs("full")
    level = {PAPER: 0.9, DENSE: 0.8}
    courses = {PAPER: [0.0, 0.0, 0.7, 0.1], DENSE: [0.0, 0.0, 0.0, 0.0, 0.5]}
    ran = [
        {"test": [*courses[cell.variant], level[cell.variant] - (cell.epsilon == 1.0) * (cell.variant == PAPER) * 0.04]}
        if dataset in ("mnist", "isolet") and cell.epsilon in (1.0, 0.2)
        else None
        for dataset, cell, _ in cells
    ]
    stops = [{"dense": 5, "ticket": 3}] * len(study.DATA)
    every, at_1, early, isolet, dense, ticket = margins.ITEM.rows("full", [*ran, *stops])
    assert (every.published, every.ours, every.repeats) == (14.0, pytest.approx(8.0), 4)
    assert (at_1.published, at_1.ours, at_1.repeats) == (None, pytest.approx(6.0), 2)
    assert (early.published, early.ours, early.repeats) == (17.0, pytest.approx(20.0), 2)
    assert (isolet.published, isolet.ours) == (50.0, pytest.approx(20.0))
    assert (dense.ours, ticket.ours, dense.published, ticket.published) == (5, 3, None, None)
    assert margins.ITEM.tasks("quick") == margins.ITEM.rows("quick", []) == []
    nothing = margins.ITEM.rows("full", [None] * (len(ran) + len(stops)))
    assert {row.ours for row in nothing} == {None}


def test_what_has_not_run_is_said_to_be_missing():
    rows = {row.quantity: row for row in study.rows("mnist", "full", values(missing=(0, 1, 2, 3)))}
    assert rows["epsilon 0.2, dense, the paper's settings: test accuracy %"].ours is None
    assert rows["epsilon 0.2, dense, the paper's settings: test accuracy %"].repeats == 0
    assert rows["epsilon 0.2, dense, tuned: test accuracy %"].repeats == 2
    everything = study.rows("mnist", "full", [None] * len(values()))
    assert all(row.ours is None for row in everything)
    assert study.figures("mnist", "full", [None] * len(values())) == {}


def test_figures_show_what_there_is():
    drawn = study.figures("fashion_mnist", "full", values())
    assert sorted(drawn) == [f"figure-{number}-fashion-mnist" for number in (1, 2, 3)]
    assert "not private" in drawn["figure-1-fashion-mnist"]
    assert study.figures("mnist", "quick", values("quick")) == {}


def test_no_data_set_is_its_own_public_ticket():
    for dataset in study.DATA:
        assert settings_of("T1, public ticket", dataset, 0.2)["ticket"]["origin"] != dataset


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_without_privacy_is_that_of_the_papers_settings(variant):
    assert "method" not in settings_of(variant, "mnist", None)
    assert settings_of("dense, tuned", "isolet", 0.2)["model"] == "linear"


def test_a_table_of_several_items_can_be_asked_for_as_one():
    names = [item.name for _, item in items_of("lottery-ticket/table-2")]
    assert names == [item.name for item in study.ITEMS]
    assert [item.name for _, item in items_of("lottery-ticket/choice")] == ["choice"]
    with pytest.raises(InvalidInput, match="item of lottery-ticket must be one of"):
        items_of("lottery-ticket/tabel-2")
