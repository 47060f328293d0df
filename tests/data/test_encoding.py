"""Encoding of columns: the formula, and features that never leave [0, 1]."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.labels import one_hot, scaled

NUMBERS = st.floats(-1e150, 1e150)


@given(
    values=st.lists(NUMBERS, min_size=1, max_size=20),
    bounds=st.tuples(NUMBERS, NUMBERS).map(sorted).filter(lambda pair: pair[0] < pair[1]),
)
def test_scaled_numbers_stay_in_the_unit_interval(values, bounds):
    low, high = bounds
    block = scaled(np.array(values), low, high)
    assert block.shape == (len(values), 1)
    assert block.dtype == np.float32
    assert ((block >= 0) & (block <= 1)).all()
    assert all(cell == 0 for cell, value in zip(block[:, 0], values, strict=True) if value <= low)
    assert all(cell == 1 for cell, value in zip(block[:, 0], values, strict=True) if value >= high)


@given(values=st.lists(st.sampled_from(["a", "b", "", "z"]), min_size=1, max_size=30))
def test_one_hot_has_a_single_one_for_known_values(values):
    block = one_hot(np.array(values, dtype=object), ["", "b", "a"])
    assert block.shape == (len(values), 3)
    for row, value in zip(block, values, strict=True):
        assert list(row) == [value == "", value == "b", value == "a"]
