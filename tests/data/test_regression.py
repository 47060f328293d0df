"""Answers that are values: declared range, checks, leaks."""

import numpy as np
import pytest

from tacit import data
from tacit.errors import InvalidInput, LeakWarning

X = np.linspace(0, 1, 10)[:, None]
Y = np.arange(10.0)


def made(y=Y, **changes):
    given = {"y_train": y, "task": "regression", "target_range": (0.0, 9.0), "bounds": (0.0, 1.0)} | changes
    return data.from_arrays(X, **given)


def test_values_are_kept_as_they_are():
    dataset = made()
    assert dataset.task == "regression"
    assert dataset.y_train.dtype == np.float32
    assert sorted([*dataset.y_train, *dataset.y_test]) == list(Y)
    assert dataset.target_range == (0.0, 9.0)
    assert dataset.classes == ()
    assert "target_range" in dataset.public_facts


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"y": np.append(Y[:-1], np.nan)}, "y_train must be finite"),
        ({"y": np.array(["a"] * 10)}, "y_train must be numbers"),
        ({"target_range": (0.0, 5.0)}, "inside the declared target_range"),
        ({"target_range": (5.0, 5.0)}, "high of target_range"),
        ({"task": "regresion"}, "Did you mean 'regression'"),
        (
            {"task": "ratings", "classes": ["low", "high"], "y": np.array(["low", "high"] * 5)},
            "classes must be numbers",
        ),
    ],
)
def test_bad_answers_are_refused(changes, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        made(**changes)


def test_a_range_read_from_the_data_is_a_leak():
    with pytest.warns(LeakWarning, match="target_range came from private data"):
        dataset = made(target_range=None)
    assert dataset.leaks == ("target_range",)
    assert dataset.target_range == (0.0, 9.0)
    with pytest.raises(InvalidInput, match="strict mode"):
        made(target_range=None, strict=True)


def test_codes_stay_integers():
    dataset = data.from_arrays(
        np.arange(20).reshape(10, 2), y_train=[0, 1] * 5, classes=(0, 1), bounds=(0, 19), codes=True
    )
    assert dataset.x_train.dtype == np.int64
    with pytest.raises(InvalidInput, match="array of integers, because codes=True"):
        data.from_arrays(X, y_train=[0, 1] * 5, classes=(0, 1), bounds=(0, 1), codes=True)
