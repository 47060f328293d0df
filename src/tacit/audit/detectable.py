"""The minimum detectable violation: what an audit of this size could have found at best."""

from __future__ import annotations

import math

import numpy as np

from tacit.audit.bounds import RateBound
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, GaussianCurve, TradeOff
from tacit.tradeoff.gaussian import gaussian_beta

_HIGHEST = 60.0
_TAIL = np.geomspace(1e-12, 0.5, 150)
_FALSE_ALARMS = np.concatenate([[0.0], _TAIL, 1 - _TAIL[::-1]])


def detectable_mu(
    bound: RateBound, *, members: int, non_members: int, alpha: float, claim: TradeOff | None = None
) -> float:
    """The smallest mu such that a best attack on a mu-GDP mechanism, at its expected counts, refutes `claim`.

    Without a claim: refutes perfect privacy. inf when not even an attack without errors would refute it: then a pass
    of this audit says nothing at all.
    """
    claim = claim or TradeOff(GaussianCurve(0.0), Standing.PROVEN, Relation.ADD_REMOVE, "perfect privacy")

    def refutes(mu: float) -> bool:
        misses = np.zeros_like(_FALSE_ALARMS) if math.isinf(mu) else gaussian_beta(_FALSE_ALARMS, mu)
        fpr = bound(_FALSE_ALARMS * non_members, non_members, alpha / 2)
        fnr = bound(misses * members, members, alpha / 2)
        reached = TradeOff(ErrorPoints(fpr, fnr), Standing.MEASURED, claim.relation, "best attack")
        return not reached <= claim

    if not refutes(math.inf):
        return math.inf
    low, high = 0.0, _HIGHEST
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if refutes(middle) else (middle, high)
    return high
