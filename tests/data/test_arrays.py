"""`from_arrays`: every check on data that the library makes."""

import re

import numpy as np
import pytest

from tacit.data import Dataset, from_arrays
from tacit.errors import InvalidInput, LeakWarning

DECLARED = {"classes": ["no", "yes"], "bounds": (0, 1)}


def arrays(rows: int = 10, width: int = 3) -> dict:
    x = np.linspace(0, 1, rows * width).reshape(rows, width)
    y = np.arange(rows) % 2
    return {"x_train": x, "y_train": y, "x_test": x[:4], "y_test": y[:4]}


def build(**changes) -> Dataset:
    return from_arrays(**{**arrays(), **DECLARED, **changes})


def with_cell(row: int, column: int, value: float) -> np.ndarray:
    x = arrays()["x_train"].copy()
    x[row, column] = value
    return x


def test_types_and_facts():
    dataset = build(name="mine", feature_names=["a", "b", "c"], notes=["source: me"])
    assert dataset.x_train.dtype == dataset.x_test.dtype == np.float32
    assert dataset.y_train.dtype == dataset.y_test.dtype == np.int64
    assert (dataset.name, dataset.classes, dataset.bounds) == ("mine", ("no", "yes"), (0.0, 1.0))
    assert dataset.feature_names == ("a", "b", "c")
    assert dataset.notes == ("source: me",)
    assert dataset.public_facts == ("number of rows: 10 for training, 4 for testing", "classes", "bounds")
    assert dataset.leaks == ()


def test_repr_shows_no_value():
    dataset = build(x_train=with_cell(0, 0, 0.123456))
    assert repr(dataset) == "Dataset('arrays', train=(10, 3), test=(4, 3), classes=2)"


def test_without_test_arrays_a_public_split_holds_rows_out():
    given = {**arrays(), **DECLARED, "x_test": None, "y_test": None}
    dataset = from_arrays(**given, test_fraction=0.3, seed=4)
    assert (len(dataset.x_train), len(dataset.x_test)) == (7, 3)
    together = np.concatenate([dataset.x_train, dataset.x_test])
    assert np.array_equal(np.sort(together, axis=0), given["x_train"].astype(np.float32))
    assert dataset.notes == ("split: 30% of all rows held out, drawn with seed 4",)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_cells_that_are_no_finite_number_are_named(value):
    with pytest.raises(InvalidInput, match=r"x_train must be finite .* rows 7, columns age.* rows count from 0"):
        build(x_train=with_cell(7, 1, value), feature_names=["size", "age", "income"])
    with pytest.raises(InvalidInput, match=r"x_test must be finite .* rows 2, columns 0"):
        build(x_test=with_cell(2, 0, value))


def test_long_lists_of_bad_cells_are_cut():
    x = np.full((100, 40), np.nan)
    with pytest.raises(
        InvalidInput, match=r"rows 0, 1, 2, 3, 4 and 95 more, columns 0, 1, 2, 3, 4 and 35 more"
    ) as caught:
        build(x_train=x, y_train=np.arange(100) % 2)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"x_train": np.zeros((0, 3)), "y_train": []}, "x_train must be of shape .* at least one of each; got (0, 3)"),
        ({"x_test": np.zeros((0, 3)), "y_test": []}, "x_test must be of shape .* got (0, 3)"),
        ({"x_train": np.zeros((10, 0))}, "x_train must be of shape .* got (10, 0)"),
        ({"x_train": np.zeros(10)}, "x_train must be of shape .* got (10,)"),
        ({"x_test": np.zeros((4, 5))}, "x_test must be rows of shape (3,), as in x_train; got (5,)"),
        ({"y_train": [0, 1]}, "y_train must be of length 10, one label for each row of x_train; got 2"),
        ({"y_test": [0] * 5}, "y_test must be of length 4, one label for each row of x_test; got 5"),
        ({"y_train": np.eye(10)}, "y_train must be one label for each row, shape (rows,); got (10, 10)"),
        ({"y_test": None}, "y_test must be one label for each row"),
        ({"x_test": None}, "x_test must be an array of numbers"),
        ({"y_train": [1] * 10}, "y_train must be labels of at least two classes; got values of the data"),
        ({"y_train": [0, 2] * 5}, "y_train must be labels of the declared classes .*; got values of the data"),
        ({"y_test": ["no", "yes", "maybe", ""]}, "y_test must be labels of .* no, yes; got values of the data"),
        (
            {"y_train": [0, np.nan] * 5},
            "y_train must be labels of the declared classes no, yes; got values of the data",
        ),
        ({"x_train": [["a", "b", "c"]] * 10}, "x_train must be an array of numbers; got 'dtype <U1'"),
        ({"classes": ["yes"]}, "classes must be at least two different names; got ['yes']"),
        ({"classes": ["yes", "yes"]}, "classes must be at least two different names"),
        ({"classes": "yes"}, "classes must be a list of at least two names; got 'yes'"),
        ({"bounds": (1, 0)}, "bounds must be (low, high) with low <= high"),
        ({"bounds": (0, np.nan)}, "bounds must be (low, high) with low <= high"),
        ({"bounds": (0, np.inf)}, "bounds must be (low, high) with low <= high"),
        ({"bounds": (0, [1, 1])}, "bounds must be .* fits a row of shape (3,)"),
        ({"bounds": 1}, "bounds must be (low, high) with low <= high"),
        ({"bounds": (0, 0.5)}, "x_train must be inside the declared bounds; got 'values outside in columns 0, 1, 2'"),
        ({"bounds": ([0, 0, 0], [1, 0.5, 1])}, "x_train must be inside .*values outside in columns 1'"),
        ({"feature_names": ["a", "b"]}, "feature_names must be 3 different names"),
        ({"feature_names": ["a", "b", "b"]}, "feature_names must be 3 different names"),
    ],
)
def test_bad_input_is_refused_with_expected_and_got(changes, sentence):
    pattern = re.escape(sentence).replace(r"\.\*", ".*").replace(r"\ ", " ")
    with pytest.raises(InvalidInput, match=pattern):
        build(**changes)


def test_bounds_are_compared_as_float32():
    x = np.full((10, 3), 0.1)
    dataset = build(x_train=x, x_test=x[:4], bounds=(0, 0.1))
    assert dataset.x_train.max() <= dataset.bounds[1]


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (["b", "a", "b", "a"], ["a", "b"], [1, 0, 1, 0]),
        ([0, 1, 1, 0], ["a", "b"], [0, 1, 1, 0]),
        ([0, 1, 1, 0], ["1", "0"], [1, 0, 0, 1]),
        ([0, 1, 1, 0], [1, 0], [1, 0, 0, 1]),
        ([-1.0, 1.0, 1.0, -1.0], [-1, 1], [0, 1, 1, 0]),
        ([True, False, True, False], [False, True], [1, 0, 1, 0]),
        (np.array(["x", None, "x", None], dtype=object), ["", "x"], [1, 0, 1, 0]),
        (np.array([3, "x", 3, "x"], dtype=object), ["x", 3], [1, 0, 1, 0]),
    ],
)
def test_labels_become_indices_of_the_declared_classes(labels, classes, expected):
    dataset = build(x_train=np.zeros((4, 3)), y_train=labels, y_test=labels, classes=classes)
    assert list(dataset.y_train) == list(dataset.y_test) == expected


def test_positions_are_not_guessed_where_classes_are_numbers():
    with pytest.raises(InvalidInput, match="declared classes 5, 7"):
        build(classes=[5, 7])


@pytest.mark.parametrize(("left_out", "how"), [("classes", r"classes=\[...\]"), ("bounds", r"bounds=\(low, high\)")])
def test_undeclared_facts_leak(left_out, how):
    with pytest.warns(LeakWarning, match=f"{left_out} came from private data.* Pass {how}") as caught:
        dataset = build(**{left_out: None})
    assert [warning.filename for warning in caught] == [__file__]
    assert dataset.leaks == (left_out,)
    assert left_out not in dataset.public_facts
    with pytest.raises(InvalidInput, match=f"{left_out} must be declared as public in strict mode"):
        build(**{left_out: None}, strict=True)


@pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning")
def test_undeclared_facts_are_read_from_all_rows():
    dataset = build(classes=None, bounds=None, y_train=[10, 9] * 5, y_test=[9, 10, 100, 9], x_test=np.full((4, 3), 7))
    assert dataset.classes == ("9", "10", "100")
    assert np.array_equal(dataset.bounds[0], dataset.x_train.min(axis=0))
    assert np.array_equal(dataset.bounds[1], [7, 7, 7])


def test_images_keep_their_shape():
    x = np.zeros((10, 1, 5, 4))
    assert build(x_train=x, x_test=x[:4]).x_train.shape == (10, 1, 5, 4)
    x[3, 0, 2, 1] = np.nan
    with pytest.raises(InvalidInput, match="rows 3, columns 9"):
        build(x_train=x, x_test=np.zeros((4, 1, 5, 4)))
