"""Tables and figures of Bu, Dong, Long & Su at full size: rows of what has run, and of what has not yet."""

import pytest

from tacit.papers import items_of
from tacit.papers.gaussian_dp import rate


def item(name):
    return items_of(f"gaussian-dp/{name}")[0][1]


def values_of(plan, tests):
    """A value for every training task by its number of epochs, None where `tests` has none; the rest is not run."""
    given = [tests.get((task.settings.get("settings", {}).get("epochs"), task.settings.get("seed"))) for task in plan]
    return [None if test is None else {"test": test} for test in given]


def rows_of(name, tests):
    plan = item(name).tasks("full")
    return {row.quantity: row for row in item(name).rows("full", values_of(plan, tests))}


def test_table_1_takes_the_mean_of_the_repeats_that_are_done():
    rows = rows_of("table-1", {(15, 0): [0.5, 0.94], (15, 1): [0.5, 0.96]})
    done = rows["sigma 1.3, 15 epochs: test accuracy %"]
    assert (done.ours, done.repeats, done.passed) == (pytest.approx(95.0), 2, True)
    missing = rows["sigma 0.5, 100 epochs: test accuracy %"]
    assert (missing.published, missing.ours, missing.repeats, missing.passed) == (98.0, None, 0, None)
    assert rows["sigma 1.3, 15 epochs: non-private twin, test accuracy %"].repeats == 1


def test_table_1_trains_every_row_three_times_and_its_twin():
    runs = [task for task in item("table-1").tasks("full") if "seed" in task.settings]
    assert sum(task.settings["private"] for task in runs) == 18
    assert sorted(task.settings["settings"]["epochs"] for task in runs if not task.settings["private"]) == [
        15, 45, 60, 62, 68, 100,
    ]  # fmt: skip


def test_figure_4_compares_epochs_that_the_published_curves_have():
    rows = rows_of("figure-4", {(20, 0): [0.95] * 20})
    assert rows["top, moments: test accuracy % after epoch 19"].passed is True
    assert rows["bottom, clt: test accuracy % after epoch 70"].repeats == 0
    assert item("figure-4").figures("full", values_of(item("figure-4").tasks("full"), {})) == {}


def test_the_learning_rate_study_leaves_out_what_has_not_run():
    rows = rows_of("figure-4-rate", {(2, 0): [0.77, 0.86, 0.85]})
    assert rows["top, moments, learning rate 0.15: test accuracy % after epoch 2"].ours == 86.0
    assert rows["top, moments, learning rate 0.5: test accuracy % after epoch 19"].repeats == 0
    assert item("figure-4-rate").tasks("quick") == rate.ITEM.rows("quick", []) == []
