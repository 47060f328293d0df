"""Metrics that help to decide, against scikit-learn, by hand, and by the coverage of their intervals."""

import numpy as np
import pytest
from sklearn.metrics import r2_score, roc_auc_score

from tacit.data import from_arrays
from tacit.runs.decision_metrics import auroc, calibration_curve, decision_metrics, proportion, recall_at


def rare(rows=400):
    """3.25 % positives, and a predictor that ranks them but never says so."""
    generator = np.random.default_rng(0)
    y = np.zeros(rows, dtype=int)
    y[: round(rows * 0.0325)] = 1
    chance = np.clip(0.1 + 0.1 * y + generator.normal(0, 0.05, rows), 0, 0.49)
    both = from_arrays(
        np.zeros((2, 1)), y_train=[0, 1], x_test=np.zeros((rows, 1)), y_test=y, classes=[0, 1], bounds=(0, 1)
    )
    return both, np.stack([1 - chance, chance], axis=1)


def test_a_constant_answer_is_told_from_a_useful_ranking():
    dataset, predicted = rare()
    found = decision_metrics(dataset, predicted)
    assert found["base_rate"] == 0.0325
    assert found["balanced_accuracy"] == 0.5
    assert found["auroc"] == pytest.approx(roc_auc_score(dataset.y_test, predicted[:, 1]))
    assert found["auroc_low"] < found["auroc"] < found["auroc_high"] <= 1
    assert found["test_low"] < 1 - 0.0325 < found["test_high"]
    useless = decision_metrics(dataset, np.tile([0.9, 0.1], (len(predicted), 1)))
    assert useless["auroc"] == 0.5
    assert useless["recall_at_fpr_0.05"] == 0.0


def test_the_interval_of_the_area_covers_it():
    """400 draws at 95 %: fewer than 355 covered has a chance below 1e-7, were each covered with 95 %."""
    generator, covered = np.random.default_rng(1), 0
    positive = np.arange(150) < 40
    for _ in range(400):
        scores = generator.normal(0, 1, 150) + positive
        _, low, high = auroc(scores, positive)
        covered += low <= 0.7602499389065233 <= high  # Phi(1 / sqrt 2)
    assert covered >= 355


def test_intervals_of_rates_never_shrink_to_a_point():
    assert proportion(0, 20)[0] == 0
    assert proportion(20, 20)[1] == 1
    assert proportion(20, 20)[0] == pytest.approx(0.025 ** (1 / 20))
    area = auroc(np.array([0.0, 1.0]), np.array([False, True]))
    assert area[0] == 1
    assert area[1] < 1


def test_recall_holds_the_false_alarms_with_ties():
    scores, positive = np.array([1, 1, 1, 0, 2]), np.array([False, True, False, False, True])
    assert recall_at(scores, positive, 0.5) == 0.5
    assert recall_at(scores, positive, 1.0) == 1.0
    assert recall_at(scores, np.zeros(5, dtype=bool)) is None
    assert auroc(scores, np.ones(5, dtype=bool)) is None


def test_a_calibrated_predictor_has_a_curve_on_the_diagonal():
    chances = np.repeat([0.25, 0.75], 400)
    positive = np.concatenate([np.arange(400) % 4 == 0, np.arange(400) % 4 != 0])
    assert [(row["predicted"], row["share"], row["rows"]) for row in calibration_curve(chances, positive)] == [
        (0.25, 0.25, 400),
        (0.75, 0.75, 400),
    ]


def test_the_band_covers_all_shares_together():
    """300 draws at 95 %: fewer than 265 covered has a chance below 1e-5, were each covered with 95 %."""
    generator, covered = np.random.default_rng(2), 0
    for _ in range(300):
        chances = generator.uniform(0, 1, 200)
        rows = calibration_curve(chances, generator.uniform(0, 1, 200) < chances**2)
        truth = [(row["end"] ** 3 - row["start"] ** 3) / 3 / (row["end"] - row["start"]) for row in rows]
        covered += all(row["low"] <= share <= row["high"] for row, share in zip(rows, truth, strict=True))
    assert covered >= 265


def test_a_bin_of_one_row_has_a_wide_band_and_its_own_edges():
    (row,) = calibration_curve(np.array([1.0]), np.array([True]))
    assert (row["start"], row["end"], row["share"], row["high"]) == (0.9, 1.0, 1.0, 1.0)
    assert row["low"] == pytest.approx(0.025)


def test_values_have_r2_and_an_interval():
    y = np.linspace(0, 1, 50)
    dataset = from_arrays(
        np.zeros((2, 1)),
        y_train=[0, 1],
        x_test=np.zeros((50, 1)),
        y_test=y,
        task="regression",
        target_range=(0, 1),
        bounds=(0, 1),
    )
    guess = y + np.where(np.arange(50) % 3, 0.1, -0.2)
    found = decision_metrics(dataset, guess)
    assert found["r2"] == pytest.approx(r2_score(dataset.y_test, guess))
    assert found["test_low"] < np.sqrt(np.mean((guess - dataset.y_test) ** 2)) < found["test_high"]
