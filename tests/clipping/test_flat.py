import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.clipping import FlatClip
from tacit.errors import InvalidInput


@given(norm=st.floats(0, 2.0**127, width=32), clip_norm=st.floats(1e-9, 1e12))
def test_a_clipped_norm_never_exceeds_the_bound(norm, clip_norm):
    factor = FlatClip(clip_norm).factors(torch.tensor([norm]), rounding=torch.finfo(torch.float32).eps).double()
    assert 0 <= float(factor) <= 1
    assert float(factor) * norm <= clip_norm
    if norm <= 0.999 * clip_norm:
        assert float(factor) == 1


def test_norms_that_are_not_finite_get_exactly_zero():
    norms = torch.tensor([math.nan, math.inf, 0.0])
    assert FlatClip(0.7).factors(norms, rounding=1e-7).tolist() == [0.0, 0.0, 1.0]


def test_sensitivity_travels_with_the_clip():
    assert FlatClip(2.5).sensitivity == 2.5


@pytest.mark.parametrize("clip_norm", [0, -1, math.nan, math.inf, "1", None, True])
def test_bad_bounds_are_refused(clip_norm):
    with pytest.raises(InvalidInput, match="clip_norm must be in"):
        FlatClip(clip_norm)
