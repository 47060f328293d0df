import json

import numpy as np
import pytest

from tacit.data import from_arrays, load
from tacit.erm.compare import compare, means, public_norm, save


@pytest.mark.slow
def test_comparison_of_every_method(tmp_path):
    rows = compare({"iris": load("iris")}, epsilons=(0.5, 50.0), repeats=1, models=("logistic", "mlp"))
    variants = {(row.model, row.method, row.variant) for row in rows}
    assert ("logistic", "objective", "exact") in variants
    assert ("mlp", "input", "paper") in variants
    assert ("logistic", "objective", "kifer") not in variants  # iris has three classes
    assert all(0 <= row.accuracy <= 1 and (row.gap is None or row.gap >= -1e-6) for row in rows)
    claimed = [row for row in rows if row.standing == "claimed"]
    assert {row.variant for row in claimed} == {"paper"}
    assert all(row.floor_epsilon > 0 for row in claimed)
    best = max(value for key, value in means(rows).items() if key[4] == 50.0)
    assert best > 0.6
    save(rows, tmp_path)
    assert len(json.loads((tmp_path / "comparison.json").read_text())) == len(rows)
    assert (tmp_path / "iris-logistic.svg").stat().st_size > 1000


def test_the_norm_that_an_encoding_allows():
    x = np.eye(4)[[0, 1, 2, 3] * 3]
    names = ("a=1", "a=2", "b=1", "c")
    data = from_arrays(x, y_train=[0, 1] * 6, classes=(0, 1), bounds=(0.0, 2.0), feature_names=names)
    assert public_norm(data) == pytest.approx(2 * np.sqrt(3))
