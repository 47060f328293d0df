"""Tables in memory: frames of several libraries give the data set that the same file gives."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from datasets import Dataset as HuggingFaceDataset

from tacit.data import table
from tacit.data.table import frame, is_frame
from tacit.errors import InvalidInput

COLUMNS = {"age": [20, 45, None, 61, 33], "ward": ["north", "south", "north", None, "south"], "ill": [0, 1, 0, 1, 1]}
DECLARED = {
    "target": "ill",
    "classes": [0, 1],
    "bounds": {"age": (20, 70)},
    "categories": {"ward": ["north", "south", ""]},
    "fill": {"age": 40},
    "name": "patients",
}
MAKERS = {
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "arrow": pyarrow.table,
    "hugging face": HuggingFaceDataset.from_dict,
    "columns": dict,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_every_frame_is_the_table_that_the_file_is(make, tmp_path):
    path = tmp_path / "patients.csv"
    pandas.DataFrame(COLUMNS).to_csv(path, index=False)
    expected, found = table(path, **DECLARED), table(make(COLUMNS), **DECLARED)
    for name in ("x_train", "x_test", "y_train", "y_test"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    assert found.feature_names == expected.feature_names


@pytest.mark.parametrize(
    "rows",
    [
        [1, 2],
        None,
        np.zeros((2, 2)),
        polars.DataFrame(COLUMNS).lazy(),
        {"age": [1], "ill": [1, 0]},
        {"age": 3},
        {},
        pandas.DataFrame({"age": []}),
    ],
    ids=["list", "None", "array", "lazy", "lengths", "number", "empty", "no rows"],
)
def test_what_is_no_table_is_refused(rows):
    with pytest.raises(InvalidInput, match="rows must be"):
        table(rows, **DECLARED)


def test_columns_of_one_name_are_refused():
    with pytest.raises(InvalidInput, match="different names"):
        frame(pandas.DataFrame([[1, 2]], columns=["age", "age"]))


def test_a_cell_that_breaks_a_declaration_is_named_by_place_alone():
    with pytest.raises(InvalidInput, match="ward") as refused:
        table(COLUMNS | {"ward": ["secret-ward", *COLUMNS["ward"][1:]]}, **DECLARED)
    assert "secret-ward" not in str(refused.value)


def test_a_path_is_no_frame():
    assert not is_frame("patients.csv")
