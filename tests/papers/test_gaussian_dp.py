"""Tables and figures of Bu, Dong, Long & Su at full size: rows of what has run, and of what has not yet."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tacit.models import MeanOfWords
from tacit_papers import items_of
from tacit_papers.gaussian_dp import figure_4, nonprivate, tables


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
    nonprivate = [
        rows[f"sigma {row}: the same training without privacy, test accuracy %"]
        for row in ("0.7, 45 epochs", "1.1, 60 epochs")
    ]
    assert [(row.ours, row.repeats) for row in nonprivate] == [(pytest.approx(90.0), 1), (pytest.approx(95.0), 1)]


def test_table_1_trains_every_row_three_times_and_one_twin():
    runs = [task for task in item("table-1").tasks("full") if "seed" in task.settings]
    assert sum(task.settings["private"] for task in runs) == 18
    assert [task.settings["settings"] for task in runs if not task.settings["private"]] == [{"epochs": 100}]


@pytest.mark.slow
def test_the_recommenders_read_every_rating_and_beat_the_mean(monkeypatch):
    draw = np.random.default_rng(0)
    pairs = np.array([(user, item) for user in range(30) for item in range(20)])
    likes = draw.integers(0, 2, 30)[pairs[:, 0]] == (pairs[:, 1] < 10)
    labels, part = np.where(likes, 4, 0), draw.permutation(600)  # one star is class 0, and a rating like any other
    train, test = part[:500], part[500:]
    data = SimpleNamespace(x_train=pairs[train], y_train=labels[train], x_test=pairs[test], y_test=labels[test])
    monkeypatch.setattr("tacit.data.load", lambda name, data_dir: data)
    errors = nonprivate.movielens(seed=0)
    assert errors["global mean"] == pytest.approx(float(np.sqrt(np.mean((labels[test] - labels[train].mean()) ** 2))))
    assert errors["user CF"] < 0.5 * errors["global mean"]
    assert errors["NMF"] < 0.5 * errors["global mean"]
    values = 1.0 + labels[train]
    guess = nonprivate.biased_factorisation(
        pairs[train], values, seed=0, shape=(30, 20), factors=5, epochs=150, rate=0.02
    )
    kept = guess[tuple(pairs[test].T)]
    assert float(np.sqrt(np.mean((np.clip(kept, 1, 5) - 1 - labels[test]) ** 2))) < 0.5 * errors["global mean"]


def test_the_lstm_learns_which_word_decides(monkeypatch):
    draw = np.random.default_rng(0)
    x = draw.integers(2, 20, size=(300, 6))
    x[:, 5] = draw.integers(0, 2, size=300)
    data = SimpleNamespace(x_train=x[:200], y_train=x[:200, 5], x_test=x[200:], y_test=x[200:, 5])
    monkeypatch.setattr("tacit.data.load", lambda name, data_dir: data)
    test = tables.imdb_lstm(epochs=40, seed=0)["test"]
    assert len(test) == 40
    assert test[-1] > 0.9
    assert rows_of("table-3", {(None, 0): [0.8, 0.855]})["NoisyAdam, padding counted in the mean, test accuracy %"].ours


def test_a_norm_by_place_understates_the_gradient_of_a_record_that_repeats_words():
    torch.manual_seed(0)
    model = MeanOfWords(20, 2, width=4, hidden=5, count_padding=True)
    x, y = torch.tensor([[3, 3, 3, 3, 4, 0], [2, 3, 4, 5, 6, 7]]), torch.tensor([0, 1])
    whole, by_place = (nonprivate.example_norms(model, x, y, summed=summed) for summed in (True, False))
    for k in range(2):
        model.zero_grad()
        nn.functional.cross_entropy(model(x[k : k + 1]), y[k : k + 1]).backward()
        norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
        assert whole[k].item() == pytest.approx(norm.item(), rel=1e-5)
    assert by_place[0] < 0.99 * whole[0]
    assert by_place[1].item() == pytest.approx(whole[1].item(), rel=1e-6)


def test_the_norm_by_place_trains_with_noise(monkeypatch):
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, size=400)
    x = np.where(y[:, None] == 1, draw.integers(2, 10, size=(400, 6)), draw.integers(10, 18, size=(400, 6)))
    data = SimpleNamespace(x_train=x, y_train=y, x_test=x, y_test=y, bounds=(0, 17))
    monkeypatch.setattr("tacit.data.load", lambda name, data_dir: data)
    for sigma, learns in ((0.5, True), (200.0, False)):
        test = nonprivate.repeated_words(1, 10, 50, sigma, 1.0, 0.02)["test"]
        assert len(test) == 10
        assert (test[-1] > 0.9) is learns


def test_figure_4_states_when_the_lower_panel_is_how_accurate_and_what_it_costs():
    plan = item("figure-4").tasks("full")
    values = values_of(plan, {(70, 0): [0.945] * 20 + [0.955] * 20 + [0.965] * 30})
    for k, (moments, clt, mu) in enumerate(((8.676, 9.0, 2.0), (9.0, 8.697, 1.7849)), 4):
        ramp = np.linspace(0, 1, 70)
        values[k] = {name: list(end * ramp) for name, end in (("moments", moments), ("clt", clt), ("mu", mu))}
    rows = {row.quantity: row for row in item("figure-4").rows("full", values)}
    assert [rows[f"bottom, clt: first epoch with {level} %"].ours for level in (95, 96, 97)] == [21, 41, None]
    assert rows["bottom, sigma 0.7, 70 epochs: epsilon by the moments accountant"].passed
    assert rows["bottom, sigma 0.638, 70 epochs: epsilon by the CLT"].passed
    assert rows["bottom, sigma 0.638, 70 epochs: mu by the CLT"].passed
    assert rows["bottom, nonprivate: test accuracy % after epoch 70"].published == 98.95
    reached = [row for row in rows.values() if "at most 4" in row.quantity]
    assert [(row.published, row.ours) for row in reached] == [(92.0, 95.5), (96.0, 95.5)]


def test_the_captions_of_figure_4_allow_for_what_is_printed_cut_off_and_what_follows_from_a_rounded_noise():
    plan = item("figure-4").tasks("quick")
    values = values_of(plan, {})
    for k, (moments, clt, mu) in {
        1: (1.3498, 9.0, 9.0),
        2: (9.0, 1.341, 0.35),
        4: (8.6757, 9.0, 9.0),
        5: (9.0, 8.697, 1.785),
    }.items():
        values[k] = {"moments": [moments], "clt": [clt], "mu": [mu]}
    costs = [row for row in item("figure-4").rows("quick", values) if "epochs: " in row.quantity]
    assert [row.tolerance for row in costs] == [0.01, 0.005, 0.005, 0.005, 0.02, 0.005]
    assert all(row.passed for row in costs)


def test_figure_4_compares_epochs_that_the_published_curves_have():
    rows = rows_of("figure-4", {(20, 0): [0.95] * 20})
    shown = rows["top, moments: test accuracy % after epoch 19"]
    assert (shown.published, shown.ours, shown.passed) == (94.86, 95.0, None)
    assert rows["top, nonprivate: test accuracy % after epoch 2"].tolerance == 1.5
    assert rows["bottom, clt: test accuracy % after epoch 70"].repeats == 0
    assert item("figure-4").figures("full", values_of(item("figure-4").tasks("full"), {})) == {}


def test_curves_are_compared_as_wholes_and_what_has_not_run_is_left_out():
    plan = item("figure-4-readings").tasks("full")
    published = figure_4._FIGURE["top"]["moments"]
    own = [0.5, *(each / 100 + 0.01 for each in published)]
    values = [{"test": own}, {"test": own}, *[None] * (len(plan) - 2)]
    rows = {row.quantity: row for row in item("figure-4-readings").rows("full", values)}
    words = ": root mean square distance of the curves, points"
    fits = rows[f"top, moments, {figure_4.SETTINGS[1]}, first epoch left out{words}"]
    assert (fits.published, fits.ours, fits.passed) == (
        None,
        pytest.approx(1.0),
        None,
    )
    assert f"top, moments, {figure_4.SETTINGS[0]}, first three epochs left out{words}" in rows
    caption = rows[f"top, moments, {figure_4.SETTINGS[0]}{words}"]
    assert (caption.published, caption.passed, caption.repeats) == (None, None, 1)
    assert rows[f"bottom, clt, {figure_4.SETTINGS[2]}{words}"].repeats == 0
    assert item("figure-4-readings").tasks("quick") == figure_4.READINGS.rows("quick", []) == []
    assert item("figure-4-readings").figures("full", values) == {}
