"""Upper bounds on an error rate from counts: for one rate fixed beforehand, or for all thresholds at once.

Every bound has the form u(k, n, alpha): k events among n independent draws, failure probability alpha. The lower
bound on the same rate is 1 - u(n - k, n, alpha).

The minimum detectable violation: what an audit of this size could have found at best.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betainccinv

from tacit.relation import Relation
from tacit.root_finding import TO_ZERO, bisect
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, GaussianCurve, TradeOff
from tacit.tradeoff.gaussian import gaussian_beta

RateBound = Callable[[np.ndarray, int, float], np.ndarray]


def clopper_pearson(events: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """The rate at which <= `events` of `trials` has probability alpha: BetaInv(1 - alpha; k + 1, n - k).

    Exact for one threshold chosen before the trials were seen (Clopper & Pearson 1934). `events` need not be whole,
    so that expected counts can be bounded too.
    """
    events = np.asarray(events, dtype=float)
    rest = np.maximum(trials - events, 0.0)
    return np.where(rest > 0, betainccinv(events + 1, np.maximum(rest, 1e-300), alpha), 1.0)


def dkw(events: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """k/n + sqrt(log(1/alpha) / 2n), at every threshold at once, alpha <= 1/2.

    One-sided Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant (Massart 1990, Theorem 1).
    """
    return np.minimum(np.asarray(events) / trials + np.sqrt(-np.log(alpha) / (2 * trials)), 1.0)


def ranks(events: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """A bound at every threshold at once that stays sharp where few or nearly all trials are events.

    The true rate beyond the r-th most extreme of n draws is at most Beta(r, n - r + 1) distributed. It is bounded at
    K ranks r fixed beforehand, each at alpha/K, where it is `clopper_pearson(r - 1, n, alpha/K)`; a threshold that
    k < r draws reach lies beyond the r-th. So u(k) is the bound at the next rank above k.
    """
    grid = _rank_grid(trials)
    at_rank = np.append(clopper_pearson(grid - 1, trials, alpha / len(grid)), 1.0)
    return at_rank[np.searchsorted(grid, np.asarray(events), side="right")]


def band(events: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """The smaller of `dkw` and `ranks`, each at alpha/2: sharp in the middle and in the tails."""
    return np.minimum(dkw(events, trials, alpha / 2), ranks(events, trials, alpha / 2))


def _rank_grid(trials: int) -> np.ndarray:
    """Ranks from 1 to n, each about 1.2 times as far from the nearer end as the one before."""
    half = np.geomspace(1, (trials + 1) / 2, max(2, round(np.log(trials) / np.log(1.2))))
    near = np.unique(np.floor(half)).astype(int)
    return np.unique(np.concatenate([near, trials + 1 - near]))


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
    return bisect(lambda gap: not refutes(gap), 0.0, _HIGHEST, halvings=TO_ZERO, relative=1e-4)[1]
