"""One step alone: delta is read off the masses above epsilon."""

from __future__ import annotations

import numpy as np

from tacit.accounting.loss.plan import SMALLEST
from tacit.mechanisms.pairs import Pair

_UNIT = 2.0**-50


class Single:
    """delta(epsilon) = P(L > epsilon) - e^epsilon Q(L > epsilon)."""

    theta = 1.0
    epsilon = 1.0

    def __init__(self, pair: Pair):
        self._pair = pair

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """The value with its rounding error."""
        p, q = self._pair.cells(np.array([epsilon]))
        given = np.exp(min(epsilon, 700.0)) * q[-1] if q[-1] else 0.0
        value, error = p[-1] - given, _UNIT * (p[-1] + given)
        if q[-1] < SMALLEST:
            # Anything from none to all of P's mass may be given.
            value = error = p[-1] / 2
        infinite = self._pair.infinite
        return float(infinite + max(value - error, 0.0)), float(min(infinite + value + error, 1.0))
