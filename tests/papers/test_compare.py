import numpy as np
import pytest

from tacit.data import from_arrays, load
from tacit_papers.input_perturbation.comparison import fits
from tacit_papers.input_perturbation.tables import public_norm


@pytest.mark.slow
def test_comparison_of_every_method():
    rows = fits(load("iris"), (0.5, 50.0), 0)
    variants = {(row.method, row.variant) for row in rows}
    assert ("objective", "exact") in variants
    assert ("input", "paper") in variants
    assert ("objective", "kifer") not in variants  # iris has three classes
    assert all(0 <= row.accuracy <= 1 and (row.gap is None or row.gap >= -1e-6) for row in rows)
    claimed = [row for row in rows if row.standing == "claimed"]
    assert {row.variant for row in claimed} == {"paper"}
    assert all(row.floor_epsilon > 0 for row in claimed)
    assert max(row.accuracy for row in rows if row.epsilon == 50.0) > 0.6


def test_the_norm_that_an_encoding_allows():
    x = np.eye(4)[[0, 1, 2, 3] * 3]
    names = ("a=1", "a=2", "b=1", "c")
    data = from_arrays(x, y_train=[0, 1] * 6, classes=(0, 1), bounds=(0.0, 2.0), feature_names=names)
    assert public_norm(data) == pytest.approx(2 * np.sqrt(3))
