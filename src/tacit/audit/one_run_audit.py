"""Audits of a single training run with many canaries, each in or out by its own fair coin.

A guess says "in" for the canaries of the highest scores and "out" for those of the lowest; the others are left out of
it. Nothing is assumed of how the canaries influence each other's scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import bdtr, gammaln, ndtr, ndtri

from tacit import check
from tacit.attacks import Scores
from tacit.audit.claim_families import Family, gaussian_family, refute_family
from tacit.audit.results import Finding
from tacit.relation import Relation
from tacit.root_finding import TO_ZERO, bisect, bracketed_root
from tacit.standing import Standing
from tacit.tradeoff import GaussianCurve, TradeOff

VALID_WHEN = "every canary was in or out by its own fair coin, and scores were made without knowing the coins"
_SHARES = (0.02, 0.1, 0.4, 1.0)


def guessed_right(scores: Scores, guesses: int) -> int:
    """How many of the guesses on the `guesses` // 2 highest and lowest scores each are right.

    Ties are broken by a public coin, so that they tell nothing.
    """
    values = np.concatenate([scores.members, scores.non_members])
    inside = np.repeat([True, False], scores.count)
    tie = np.random.default_rng(0).permutation(len(values))
    order = np.lexsort((tie, values))
    half = check.count("guesses", guesses, minimum=2) // 2
    if 2 * half > len(values):
        raise check.fail("guesses", f"at most {len(values)}, one for each canary", guesses)
    return int(np.sum(inside[order[-half:]]) + np.sum(~inside[order[:half]]))


def one_run_p_value(*, canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The probability of `right` or more right guesses under (epsilon, delta)-DP is at most this.

    P[W >= v] <= P[B >= v] + 2 m delta max_i P[v - i <= B < v] / i,  B ~ Bin(r, e^eps / (1 + e^eps)),
    where m is the number of canaries, r of guesses and v of right ones (Steinke, Nasr & Jagielski 2023, Theorem 5.2).
    """
    rate = 1 / (1 + np.exp(-check.epsilon(epsilon)))
    below = np.arange(right - 1, -1, -1)
    with np.errstate(divide="ignore"):
        logs = gammaln(guesses + 1) - gammaln(below + 1) - gammaln(guesses - below + 1)
        logs = logs + below * np.log(rate) + (guesses - below) * np.log1p(-rate)
    mass = np.cumsum(np.exp(logs))
    worst = float(np.max(mass / np.arange(1, right + 1), initial=0.0))
    at_least = 1.0 if right == 0 else float(1 - bdtr(right - 1, guesses, rate))
    return min(1.0, at_least + 2 * canaries * delta * worst)


def one_run_curve_refutes(claim: TradeOff, *, canaries: int, guesses: int, right: int, alpha: float) -> bool:
    """Whether `right` of `guesses` right guesses had probability below `alpha` under the claimed curve f.

    With p_i the probability of exactly i right guesses, R_i = sum_{j >= i} (j / m) p_j and H_i = sum_{j >= i}
    ((r - j) / m) p_j, any f-DP mechanism has H_{i-1} >= f(1 - R_i), f being symmetric (Mahloujifar, Melis & Chaudhuri
    2024, Theorem 9). Were P[W >= v] = alpha, these inequalities would force the masses, which sum to r / m, beyond
    it; then it is smaller. The certified curve must be given, not a Gaussian near it.
    """
    beta = _reader(claim)
    scale = alpha / canaries
    hits, misses = scale * right, scale * (guesses - right)
    for i in range(right - 1, -1, -1):
        pushed = max(misses, beta(1 - hits))
        hits += i / (guesses - i) * (pushed - misses)
        misses = pushed
        if hits + misses > guesses / canaries:
            return True
    return False


def audit_one_run(
    scores: Scores,
    *,
    delta: float,
    guesses: Sequence[int] | None = None,
    confidence: float = 0.95,
    claim: TradeOff | None = None,
) -> Finding:
    """The epsilon that the right guesses refute at `delta`, by Steinke et al.

    Args:
        scores: of canaries that were in (members) or out; all of the coins, none left away.
        delta: the claim's delta.
        guesses: how many guesses to make, fixed beforehand; several share the failure probability. By default 2, 10,
            40 and 100 % of the canaries.
        claim: for `refuted` and the minimum detectable violation.
    """
    delta, level, tried = _settled(scores, delta, guesses, confidence)
    canaries, seen = sum(scores.count), [(r, guessed_right(scores, r)) for r in tried]

    def refutes(epsilon: float, results: Sequence[tuple[int, int]] = seen) -> bool:
        return any(
            one_run_p_value(canaries=canaries, guesses=r, right=v, epsilon=epsilon, delta=delta) < level
            for r, v in results
        )

    claimed = 0.0 if claim is None else float(claim.epsilon(delta))
    return Finding(
        attack=scores.attack,
        estimator="one_run",
        valid_when=VALID_WHEN,
        confidence=confidence,
        delta=delta,
        epsilon_lower=_largest(refutes),
        refuted=None if claim is None else refutes(claimed),
        detectable_mu=_detectable(canaries, tried, lambda results: refutes(claimed, results)),
    )


def audit_one_run_curve(
    scores: Scores,
    *,
    delta: float,
    guesses: Sequence[int] | None = None,
    confidence: float = 0.95,
    claim: TradeOff | None = None,
    family: Family | None = None,
) -> Finding:
    """What the right guesses refute when claims are whole curves, by Mahloujifar et al.

    Args:
        family: of which the refuted member gives epsilon; Gaussian DP by default, then valid for its mechanisms.

    The other arguments are those of `audit_one_run`.
    """
    delta, level, tried = _settled(scores, delta, guesses, confidence)
    canaries, seen = sum(scores.count), [(r, guessed_right(scores, r)) for r in tried]

    def refutes(curve: TradeOff, results: Sequence[tuple[int, int]] = seen) -> bool:
        return any(one_run_curve_refutes(curve, canaries=canaries, guesses=r, right=v, alpha=level) for r, v in results)

    chosen = family or gaussian_family()
    found = refute_family(chosen, refutes, delta=delta)
    against = claim or TradeOff(GaussianCurve(0.0), Standing.PROVEN, Relation.ADD_REMOVE, "perfect privacy")
    return Finding(
        attack=scores.attack,
        estimator="one_run_curve",
        valid_when=f"{VALID_WHEN}; epsilon is that of the family of {chosen.parameter}",
        confidence=confidence,
        delta=delta,
        epsilon_lower=found.epsilon_lower,
        mu_lower=found.parameter if chosen.parameter == "mu" else None,
        refuted=None if claim is None else refutes(claim),
        detectable_mu=_detectable(canaries, tried, lambda results: refutes(against, results)),
    )


def _settled(
    scores: Scores, delta: float, guesses: Sequence[int] | None, confidence: float
) -> tuple[float, float, list[int]]:
    """(delta, failure probability of each number of guesses, the numbers of guesses, all even)."""
    confidence = check.probability("confidence", confidence, open_low=True, open_high=True)
    canaries = sum(scores.count)
    wanted = [share * canaries for share in _SHARES] if guesses is None else list(guesses)
    tried = sorted({max(2, 2 * int(count // 2)) for count in wanted})
    return check.delta(delta), (1 - confidence) / len(tried), tried


def _largest(refutes: Callable[[float], bool]) -> float:
    """The largest refuted epsilon, to 1e-4, from below."""
    if not refutes(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refutes(high):
        low, high = high, 2 * high
    return bisect(refutes, low, high, width=1e-4)[0]


def _reader(claim: TradeOff) -> Callable[[float], float]:
    """f as a function of one number; Gaussian curves and tangents are both read one point at a time."""
    if isinstance(claim.curve, GaussianCurve):
        mu = claim.curve.mu(0.0)
        return lambda alpha: float(ndtr(ndtri(1 - alpha) - mu))
    epsilons, deltas = claim.curve.profile
    slopes, heights = np.exp(np.minimum(epsilons, 700.0)), 1 - deltas
    return lambda alpha: max(0.0, float((heights - slopes * alpha).max()), float(((heights - alpha) / slopes).max()))


def _detectable(canaries: int, tried: Sequence[int], refutes: Callable[[Sequence[tuple[int, int]]], bool]) -> float:
    """The smallest mu at which canaries of scores N(+-mu/2, 1) are expected to be guessed well enough; inf if none."""

    def found(mu: float) -> bool:
        return refutes([(r, int(r * _accuracy(mu, r / canaries))) for r in tried])

    if not found(60.0):
        return float("inf")
    return bisect(lambda mu: not found(mu), 0.0, 60.0, halvings=TO_ZERO, relative=1e-3)[1]


def _accuracy(mu: float, share: float) -> float:
    """P(in | among the share / 2 highest scores) for scores N(mu/2, 1) of canaries in and N(-mu/2, 1) of those out."""
    edge = 40.0 + mu
    at = bracketed_root(lambda t: float(ndtr(mu / 2 - t) + ndtr(-mu / 2 - t)) - share, -edge, edge)
    inside, outside = ndtr(mu / 2 - at), ndtr(-mu / 2 - at)
    return float(inside / (inside + outside))
