"""Figure 2 at cross-validated steps: which setting is taken, and rows from what has run so far."""

import pytest

from tacit_papers.input_perturbation import cross_validation
from tacit_papers.input_perturbation.cross_validation import ITEM, METHODS, RATES, STEPS, converged

PAPER = "adult_complete, epsilon 0.1, input perturbation (claimed): "


def test_rows_are_means_over_the_splits_that_have_run():
    tasks = ITEM.tasks("full")
    values = [
        {"test": 0.8 + 0.02 * task.settings["seed"], "steps": 100, "regularization": "auto", "tried": []}
        if task.settings["dataset"] == "adult_complete"
        and task.settings["seed"] < 2
        and task.settings["epsilon"] == 0.1
        else None
        for task in tasks
    ]
    rows = {row.quantity: row for row in ITEM.rows("full", values)}
    assert (rows[f"{PAPER}test accuracy %"].ours, rows[f"{PAPER}test accuracy %"].repeats) == (pytest.approx(81.0), 2)
    assert rows[f"{PAPER}steps chosen"].ours == 100
    assert rows["adult_complete, epsilon 0.01, Wang, gradient perturbation: test accuracy %"].ours is None
    assert not any("Kifer" in words and "steps" in words for words in rows)
    assert ITEM.tasks("quick") == ITEM.rows("quick", []) == []


def test_the_setting_that_does_best_on_the_part_held_out_is_fitted_on_all_records(monkeypatch, original_files):
    fits, seeds = [], []

    def score(data, method, epsilon, seed, train, test, at):
        fits.append((len(train[1]), len(test[1]), at))
        seeds.append(seed)
        return {100: 0.9}.get(at[0], 0.5) + (0.01 if at[1] == 1e-3 else 0.0)

    monkeypatch.setattr(cross_validation, "_score", score)
    found = cross_validation.chosen("breast_cancer_wisconsin", "wang", 1.0, 0, data_dir=original_files)
    assert (found["steps"], found["regularization"], found["test"]) == (100, 1e-3, pytest.approx(0.91))
    *tried, last = fits
    assert len(tried) == 2 * len(STEPS) == len(found["tried"])
    assert last[2] == (100, 1e-3, 1.0)
    assert seeds[-1] not in seeds[:-1]  # the choice is of a setting, not of its noise
    assert {sum(each[:2]) for each in tried} == {last[0]}  # the test records are not among those that choose


def test_rates_are_tried_at_the_steps_and_regularisation_that_do_best(monkeypatch):
    monkeypatch.setattr(
        cross_validation, "_score", lambda *given: {(20, 4.0): 0.9, (20, 1.0): 0.8}.get(given[-1][::2], 0.5)
    )
    found = cross_validation.chosen("iris_setosa", "paper", 1.0, 0, RATES)
    assert (found["steps"], found["rate"], found["test"]) == (20, 4.0, 0.9)
    assert [each["rate"] for each in found["tried"][-2:]] == list(RATES)
    for task in ITEM.tasks("full"):
        assert bool(task.settings["rates"]) == (task.settings["method"] in ("paper", "wang"))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_fits_at_given_steps(method, monkeypatch, original_files):
    monkeypatch.setattr(cross_validation, "STEPS", (10,))
    found = cross_validation.chosen("breast_cancer_wisconsin", method, 1.0, 0, data_dir=original_files)
    assert 0.0 <= found["test"] <= 1.0
    assert 0.0 <= converged("iris_setosa", method, found["steps"], 1.0)["accuracy"] <= 1.0
    assert found["steps"] == (None if method == "kifer" else 10)
