"""`BinnedLoss`: the privacy loss of two neighbours in bins, for numeric integration of divergences."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tacit.mechanisms.pairs import Pair
from tacit.testing.expect import require, require_close

_SHARES = (0.0, 0.3, 0.9)  # Members of an envelope of mechanisms, such as the bounded-range family.
_BINS = 4000  # A binned Renyi divergence is then below the exact one by about 1e-3 at most.
ALLOWANCE = 1e-8
"""Relative rounding of sums of masses in double precision, each good to about 1e-12."""
MASS_ROUNDING = 1e-12
"""Absolute rounding of one mass."""


class BinnedLoss:
    """The privacy loss of a pair of neighbours in bins: masses under P and Q, and those of infinite losses.

    By the data-processing inequality every divergence of the binned laws is a lower bound on that of the pair.

    Attributes:
        edges: increasing losses, shape (bins + 1,).
        p: P-masses below, between and above the edges, shape (bins + 2,).
        q: the same under Q.
        only_p: P-mass where Q has none (loss +inf).
        only_q: Q-mass where P has none (loss -inf).
    """

    def __init__(self, pair: Pair):
        self.pair = pair
        self.edges = np.linspace(-1.0, 1.0, _BINS + 1) * _reach(pair)
        self.p, self.q = pair.bin_masses(self.edges)
        self.only_p, self.only_q = pair.infinity_mass, pair.negative_infinity_mass

    @classmethod
    def members(cls, pair: Pair) -> Iterator[BinnedLoss]:
        """Laws of actual mechanisms: the pair itself, or members of the family where the pair is an envelope."""
        found = {pair.attained(share) for share in _SHARES}
        yield from (cls(each) for each in found)

    def hockey_stick(self, epsilon: float) -> tuple[float, float]:
        """H_{e^epsilon}(P || Q) and H_{e^epsilon}(Q || P), exact: epsilon is an edge of the bins."""
        p, q = self.pair.bin_masses(np.array([-epsilon, epsilon]) if epsilon else np.array([0.0]))
        forward = self.only_p + p[-1] - math.exp(epsilon) * q[-1]
        backward = self.only_q + q[0] - math.exp(epsilon) * p[0]
        return float(forward), float(backward)

    def renyi(self, order: float) -> float:
        """Lower bound on the larger of D_a(P || Q) and D_a(Q || P)."""
        if self.only_p > 0 or self.only_q > 0:
            return math.inf if max(self.only_p, self.only_q) > MASS_ROUNDING else 0.0
        both = (self.p > 0) & (self.q > 0)
        log_p, log_q = np.log(self.p[both]), np.log(self.q[both])
        moments = (np.logaddexp.reduce(order * a + (1 - order) * b) for a, b in ((log_p, log_q), (log_q, log_p)))
        return float(max(moments)) / (order - 1)


def _reach(pair: Pair) -> float:
    """A loss beyond which either side has a mass below 1e-14."""
    reach = 1.0
    while reach < 2.0**12:
        p, q = pair.bin_masses(np.array([-reach, reach]))
        if max(p[0], p[-1], q[0], q[-1]) < 1e-14:
            break
        reach *= 2
    return reach


def check_pair(pair: Pair) -> None:
    """Require that P and Q have mass 1, and masses in every bin whose ratio lies in the bin's range of the loss.

    Raises:
        AssertionError: the masses contradict the losses.
    """
    law = BinnedLoss(pair)
    require_close(float(law.p.sum()) + law.only_p, 1.0, f"the mass of P of {pair}", relative=1e-9)
    require_close(float(law.q.sum()) + law.only_q, 1.0, f"the mass of Q of {pair}", relative=1e-9)
    low, high = np.exp(law.edges[:-1]), np.exp(law.edges[1:])
    p, q = law.p[1:-1], law.q[1:-1]
    slack = MASS_ROUNDING * np.maximum(1.0, high)
    inside = (p >= q * low * (1 - ALLOWANCE) - slack) & (p <= q * high * (1 + ALLOWANCE) + slack)
    require(inside.all(), f"masses of {pair} must have a ratio within every interval of the loss.")
