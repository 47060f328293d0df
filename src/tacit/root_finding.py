"""One-dimensional root search, with the tolerances that privacy numbers need."""

from collections.abc import Callable
from typing import Any, cast

from scipy.optimize import brentq


def bracketed_root(function: Callable[[float], float], low: float, high: float, *, relative: float = 1e-13) -> float:
    """The root of a monotone `function` in [low, high], which must hold a sign change, to `relative` accuracy."""
    return float(cast(Any, brentq)(function, low, high, xtol=1e-300, rtol=relative, maxiter=1000))
