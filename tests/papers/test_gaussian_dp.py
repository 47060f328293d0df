"""Tables and figures of Bu, Dong, Long & Su at full size: rows of what has run, and of what has not yet."""

from types import SimpleNamespace

import numpy as np
import pytest

from tacit.papers import items_of
from tacit.papers.gaussian_dp import baselines, rate


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
    rows = rows_of("table-1", {(15, 0): [0.5, 0.94], (15, 1): [0.5, 0.96], (100, 0): [0.9] * 45 + [0.95] * 55})
    done = rows["sigma 1.3, 15 epochs: test accuracy %"]
    assert (done.ours, done.repeats, done.passed) == (pytest.approx(95.0), 2, True)
    missing = rows["sigma 0.6, 62 epochs: test accuracy %"]
    assert (missing.published, missing.ours, missing.repeats, missing.passed) == (97.6, None, 0, None)
    twins = [rows[f"sigma {row}: non-private twin, test accuracy %"] for row in ("0.7, 45 epochs", "1.1, 60 epochs")]
    assert [(twin.ours, twin.repeats) for twin in twins] == [(pytest.approx(90.0), 1), (pytest.approx(95.0), 1)]


def test_table_1_trains_every_row_three_times_and_one_twin():
    runs = [task for task in item("table-1").tasks("full") if "seed" in task.settings]
    assert sum(task.settings["private"] for task in runs) == 18
    assert [task.settings["settings"] for task in runs if not task.settings["private"]] == [{"epochs": 100}]


def test_the_lstm_learns_which_word_decides(monkeypatch):
    draw = np.random.default_rng(0)
    x = draw.integers(2, 20, size=(300, 6))
    x[:, 5] = draw.integers(0, 2, size=300)
    data = SimpleNamespace(x_train=x[:200], y_train=x[:200, 5], x_test=x[200:], y_test=x[200:, 5])
    monkeypatch.setattr("tacit.data.load", lambda name, data_dir: data)
    test = baselines.imdb_lstm(epochs=40, seed=0)["test"]
    assert len(test) == 40
    assert test[-1] > 0.9
    assert rows_of("table-3", {(None, 0): [0.8, 0.855]})["NoisyAdam, padding counted in the mean, test accuracy %"].ours


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
