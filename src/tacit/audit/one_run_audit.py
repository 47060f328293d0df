"""One-run audits: a single training run that includes each of many canaries independently with probability 1/2.

The auditor guesses "in" for the canaries of the highest scores and "out" for those of the lowest, and abstains on the
others. The canaries may influence each other's scores in any way.

Refuting every curve of Gaussian DP that leaks less is sharper than any bound at a single delta, which no attack
reaches with few trials.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import bdtr, gammaln, ndtr, ndtri

from tacit import check
from tacit.attacks import Scores
from tacit.audit.bounds import LARGEST_MU, perfect_privacy, smallest_refuting
from tacit.audit.run import Finding
from tacit.relation import Relation
from tacit.root_finding import TO_ZERO, bisect, bracketed_root
from tacit.standing import Standing
from tacit.tradeoff import GaussianCurve, TradeOff

VALID_WHEN = "every canary was in or out by its own fair coin, and scores were made without knowing the coins"
_SHARES = (0.02, 0.1, 0.4, 1.0)  # of canaries that are guessed on, by default
_HIGHEST_MU, _MU_ACCURACY = 30.0, 1e-3  # relative: below the statistical error of any audit

Counts = Sequence[tuple[int, int]]
"""(guesses, right guesses) for each number of guesses."""


def guessed_right(scores: Scores, guesses: int) -> int:
    """Number of right guesses on the `guesses` // 2 highest and the `guesses` // 2 lowest scores.

    Ties are broken by a public coin, so that they carry no information.

    Example:
        >>> guessed_right(Scores("canaries", [3.0, 2.0, 0.5], [1.0, 0.0, -1.0], 0.0), 4)
        4
    """
    values = np.concatenate([scores.members, scores.non_members])
    inside = np.repeat([True, False], scores.count)
    order = np.lexsort((np.random.default_rng(0).permutation(len(values)), values))
    half = check.count("guesses", guesses, minimum=2) // 2
    check.that(2 * half <= len(values), "guesses", f"at most {len(values)}, one for each canary", guesses)
    return int(np.sum(inside[order[-half:]]) + np.sum(~inside[order[:half]]))


def one_run_p_value(*, canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Upper bound on the probability of `right` or more right guesses under (epsilon, delta)-DP.

    P[W >= v] <= P[B >= v] + 2 m delta max_i P[v - i <= B < v] / i,  B ~ Bin(r, e^eps / (1 + e^eps)),
    where m is the number of canaries, r of guesses and v of right ones (Steinke, Nasr & Jagielski 2023, Theorem 5.2).

    Args:
        canaries: m.
        guesses: r <= m.
        right: v <= r.
        epsilon: >= 0.
        delta: in [0, 1].

    Raises:
        InvalidInput: epsilon breaks its rule.

    Example:
        >>> round(one_run_p_value(canaries=20, guesses=10, right=10, epsilon=0.0, delta=0.0), 6)
        0.000977
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
    """Whether `right` of `guesses` right guesses have a probability below `alpha` under the claimed curve.

    With f the claimed curve, p_i the probability of exactly i right guesses, R_i = sum_{j >= i} (j / m) p_j and
    H_i = sum_{j >= i} ((r - j) / m) p_j, any f-DP mechanism has H_{i-1} >= f(1 - R_i), f being symmetric
    (Mahloujifar, Melis & Chaudhuri 2024, Theorem 9). Suppose P[W >= v] = alpha. If these inequalities then force the
    sum of the masses above its value r / m, P[W >= v] is below alpha. `claim` must be the certified curve, not a
    Gaussian near it.

    Args:
        claim: the curve under test.
        canaries: m.
        guesses: r <= m.
        right: v <= r.
        alpha: in (0, 1).

    Example:
        >>> game = {"canaries": 20, "guesses": 20, "alpha": 0.05}
        >>> [one_run_curve_refutes(perfect_privacy(), right=right, **game) for right in (12, 20)]
        [False, True]
    """
    beta = _scalar_beta(claim)
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
    """Largest epsilon at `delta` that the right guesses refute, by Steinke et al.

    Args:
        scores: of all canaries, those that were in as members, the others as non-members.
        delta: the claim's delta, in [0, 1].
        guesses: numbers of guesses, fixed beforehand; several share the failure probability. By default 2, 10, 40
            and 100 % of the canaries.
        confidence: in (0, 1).
        claim: for `refuted` and the minimum detectable violation.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> scores = Scores("canaries", np.arange(50.0) + 100, np.arange(50.0), 0.0)
        >>> audit_one_run(scores, delta=0.0).epsilon_lower > 2
        True
    """
    delta, level, observed = _counted(scores, delta, guesses, confidence)
    canaries = sum(scores.count)

    def refutes(epsilon: float, results: Counts = observed) -> bool:
        game = {"canaries": canaries, "epsilon": epsilon, "delta": delta}
        return math.isfinite(epsilon) and any(one_run_p_value(guesses=r, right=v, **game) < level for r, v in results)

    claimed = 0.0 if claim is None else float(claim.epsilon(delta))
    stated = (scores.attack, "one_run", VALID_WHEN, confidence, delta)
    refuted = None if claim is None else refutes(claimed)
    detectable = _detectable(canaries, observed, lambda results: refutes(claimed, results))
    return Finding(*stated, _largest_refuted(refutes), refuted=refuted, detectable_mu=detectable)


def audit_one_run_curve(
    scores: Scores,
    *,
    delta: float,
    guesses: Sequence[int] | None = None,
    confidence: float = 0.95,
    claim: TradeOff | None = None,
) -> Finding:
    """Largest mu of Gaussian DP that the right guesses refute, by Mahloujifar et al.

    Its bounds are valid for mechanisms of Gaussian DP, `refuted` for any claim.

    Args:
        scores: of all canaries, those that were in as members, the others as non-members.
        delta: the claim's delta, in [0, 1].
        guesses: numbers of guesses as for `audit_one_run`.
        confidence: in (0, 1).
        claim: for `refuted` and the minimum detectable violation.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> scores = Scores("canaries", np.arange(50.0) + 100, np.arange(50.0), 0.0)
        >>> audit_one_run_curve(scores, delta=1e-5).mu_lower > 1
        True
    """
    delta, level, observed = _counted(scores, delta, guesses, confidence)
    canaries = sum(scores.count)

    def refutes(curve: TradeOff, results: Counts = observed) -> bool:
        return any(one_run_curve_refutes(curve, canaries=canaries, guesses=r, right=v, alpha=level) for r, v in results)

    mu = _largest_mu(refutes)
    against = claim or perfect_privacy()
    stated = (scores.attack, "one_run_curve", f"{VALID_WHEN}; epsilon is that of the family of mu", confidence, delta)
    refuted = None if claim is None else refutes(claim)
    detectable = _detectable(canaries, observed, lambda results: refutes(against, results))
    epsilon = 0.0 if mu is None else float(_gaussian_dp(mu).epsilon(delta))
    return Finding(*stated, epsilon, mu, refuted, detectable)


def _counted(
    scores: Scores, delta: float, guesses: Sequence[int] | None, confidence: float
) -> tuple[float, float, Counts]:
    """(delta, failure probability of each number of guesses, right guesses for each even number of guesses)."""
    confidence = check.confidence(confidence)
    canaries = sum(scores.count)
    wanted = [share * canaries for share in _SHARES] if guesses is None else list(guesses)
    tried = sorted({max(2, 2 * int(count // 2)) for count in wanted})
    return check.delta(delta), (1 - confidence) / len(tried), [(r, guessed_right(scores, r)) for r in tried]


def _largest_refuted(refutes: Callable[[float], bool]) -> float:
    """The largest refuted epsilon, to 1e-4, from below."""
    if not refutes(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refutes(high):
        low, high = high, 2 * high
    return bisect(refutes, low, high, width=1e-4)[0]


def _gaussian_dp(mu: float) -> TradeOff:
    return TradeOff(GaussianCurve(mu), Standing.PROVEN, Relation.ADD_REMOVE, f"{mu:.4g}-GDP")


def _largest_mu(refutes: Callable[[TradeOff], bool]) -> float | None:
    """The largest mu whose curve is refuted, to .1 %, or None; bisection ends at one that was itself refuted."""
    if not refutes(_gaussian_dp(0.0)):
        return None
    if refutes(_gaussian_dp(_HIGHEST_MU)):
        return _HIGHEST_MU
    return bisect(lambda mu: refutes(_gaussian_dp(mu)), 0.0, _HIGHEST_MU, halvings=TO_ZERO, relative=_MU_ACCURACY)[0]


def _scalar_beta(claim: TradeOff) -> Callable[[float], float]:
    """The claimed curve as a function of one number, for the recursion, which needs one point at a time."""
    if isinstance(claim.curve, GaussianCurve):
        mu = claim.curve.mu(0.0)
        return lambda alpha: float(ndtr(ndtri(1 - alpha) - mu))
    epsilons, deltas = claim.curve.profile
    slopes, heights = np.exp(np.minimum(epsilons, 700.0)), 1 - deltas
    return lambda alpha: max(0.0, float((heights - slopes * alpha).max()), float(((heights - alpha) / slopes).max()))


def _detectable(canaries: int, observed: Counts, refutes: Callable[[Counts], bool]) -> float:
    """The smallest mu at which expected right guesses on canaries of scores N(+-mu/2, 1) refute; inf if none."""

    def found(mu: float) -> bool:
        return refutes([(r, int(r * _accuracy(mu, r / canaries))) for r, _ in observed])

    return smallest_refuting(found, accuracy=1e-3) if found(LARGEST_MU) else float("inf")


def _accuracy(mu: float, share: float) -> float:
    """P(in | among the share / 2 highest scores) for scores N(mu/2, 1) of canaries in and N(-mu/2, 1) of those out."""
    edge = 40.0 + mu
    at = bracketed_root(lambda t: float(ndtr(mu / 2 - t) + ndtr(-mu / 2 - t)) - share, -edge, edge)
    inside, outside = ndtr(mu / 2 - at), ndtr(-mu / 2 - at)
    return float(inside / (inside + outside))
