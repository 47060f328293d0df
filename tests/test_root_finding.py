"""The searches of `tacit.root_finding` are those of scipy.optimize to the last bit, without loading that package."""

import math
import random

import pytest
from scipy.optimize import brentq, minimize_scalar

from tacit.root_finding import bracketed_root, minimum

RISING = (
    lambda x, place, steep: math.tanh(steep * (x - place)),
    lambda x, place, steep: (x - place) ** 3,
    lambda x, place, steep: math.exp(min(steep * x, 700.0)) - math.exp(min(steep * place, 700.0)),
    lambda x, place, steep: math.log(max(x + 2, 1e-300)) - math.log(place + 2),
    lambda x, place, steep: math.copysign(1.0, x - place) if x != place else 0.0,
)
VALLEYS = (
    lambda x, place, steep: abs(x - place),
    lambda x, place, steep: (x - place) ** 4,
    lambda x, place, steep: -math.exp(-steep * (x - place) ** 2),
    lambda x, place, steep: round((x - place) ** 2, 2),
)


def drawn(shapes, count):
    random_ = random.Random(38)
    for _ in range(count):
        shape, place, steep = random_.choice(shapes), random_.uniform(-1, 3), 10 ** random_.uniform(-3, 3)
        yield lambda x, shape=shape, place=place, steep=steep: shape(x, place, steep), 10 ** random_.uniform(-15, -3)


def test_roots_are_those_of_scipy_to_the_last_bit():
    for function, relative in drawn(RISING, 1000):
        theirs = brentq(function, -1.9, 5.0, xtol=1e-300, rtol=relative, maxiter=1000)
        assert bracketed_root(function, -1.9, 5.0, relative=relative) == theirs


def test_minima_are_those_of_scipy_to_the_last_bit():
    for function, accuracy in drawn(VALLEYS, 1000):
        theirs = minimize_scalar(function, bounds=(-1.9, 5.0), method="bounded", options={"xatol": accuracy})
        assert minimum(function, -1.9, 5.0, accuracy=accuracy) == theirs.x


def test_a_root_at_an_end_is_returned_and_equal_signs_and_nan_are_refused():
    assert bracketed_root(lambda x: x, 0.0, 1.0) == 0.0
    assert bracketed_root(lambda x: x - 1, 0.0, 1.0) == 1.0
    with pytest.raises(ValueError, match="unlike signs"):
        bracketed_root(lambda x: x + 1, 0.0, 1.0)
    with pytest.raises(ValueError, match="NaN"):
        bracketed_root(lambda x: math.nan, 0.0, 1.0)
