"""The calibration error of predicted probabilities."""

import numpy as np
import pytest

from tacit.runs.decision_metrics import calibration_curve, calibration_error


def test_by_hand():
    chances, positive = np.array([0.05, 0.15, 0.15, 0.95]), np.array([False, True, False, True])
    curve = calibration_curve(chances, positive)
    assert [row["rows"] for row in curve] == [1, 2, 1]
    assert [row["share"] for row in curve] == [0.0, 0.5, 1.0]
    assert calibration_error(chances, positive) == pytest.approx((0.05 + 2 * 0.35 + 0.05) / 4)


def test_true_probabilities_are_calibrated_and_sharpened_ones_are_not():
    """20,000 draws in 10 bins: an error of .03 is above 6 standard errors of the mean gap."""
    draw = np.random.default_rng(0)
    chances = draw.random(20_000)
    positive = draw.random(20_000) < chances
    odds = (chances / (1 - chances)) ** 4
    assert calibration_error(chances, positive) < 0.03
    assert calibration_error(odds / (1 + odds), positive) > 0.1
