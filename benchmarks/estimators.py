"""Estimators of `benchmarks/audit.py` that no command of the package offers, and the trials that they take.

Families of claims ordered by one parameter, and the leakiest member that an audit refutes: where only one parameter of
the mechanism is unknown, such as the noise of DP-SGD, refuting every member that leaks less is sharper than any bound
at a single delta, which no attack reaches with few trials.

Anytime-valid audits: the confidence holds although the auditor looks after every trial and stops at will.

The separation of near-normal canary scores (as in "Let's ask Gauss", arXiv 2606.12733).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtri

from tacit import check
from tacit.accounting import accountant
from tacit.attacks import Scores, roc
from tacit.audit import guessed_right, one_run_curve_refutes
from tacit.audit.bounds import LARGEST_MU, RateBound, clopper_pearson, perfect_privacy, smallest_refuting
from tacit.audit.run import Finding
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, GaussianCurve, TradeOff
from tacit.tradeoff.gaussian import gaussian_beta, gaussian_epsilon

Trial = Callable[[bool], float]
"""Runs the mechanism once, with the canary or without, and scores what it released: higher means "with"."""

Progress = Callable[[int, int], None]


def many_runs(
    trial: Trial,
    *,
    attack: str,
    runs: int,
    threshold: float = 0.0,
    on_progress: Progress = lambda done, total: None,
) -> Scores:
    """Scores of `runs` independent runs with the canary and `runs` without: the trials of bounds on the mechanism.

    The worlds alternate, so that a machine that drifts affects both alike.

    Args:
        trial: runs the mechanism; each run must start anew, from nothing that an earlier one left.
        attack: name of the attack.
        runs: in each world, >= 1.
        threshold: the attack's own rule, fixed beforehand.
        on_progress: called with (runs done, runs in all).

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> many_runs(float, attack="sure", runs=3, threshold=0.5).count
        (3, 3)
    """
    runs = check.count("runs", runs)
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * runs):
        included = number % 2 == 0
        found[included].append(float(trial(included)))
        on_progress(number + 1, 2 * runs)
    return Scores(attack, np.array(found[True]), np.array(found[False]), threshold)


@dataclass
class ReleaseDifferences:
    """Sum over consecutive releases of (x_t - x_{t-1})^2 / (2 s^2) - 1.

    Fresh noise gives it mean 0 without the canary and a slightly larger mean with it. Reused noise cancels, which
    leaves the steps at which the canary was sampled.

    Args:
        noise_multiplier: the claimed s, > 0.

    Attributes:
        total: the sum so far, shape (canaries,).

    Example:
        >>> differences = ReleaseDifferences(noise_multiplier=1.0)
        >>> for release in ([0.0, 0.0], [2.0, 0.0]):
        ...     differences.add(np.array(release))
        >>> differences.total
        array([ 1., -1.])
    """

    noise_multiplier: float
    total: np.ndarray | float = field(default=0.0, init=False, repr=False)
    _last: np.ndarray | None = field(default=None, init=False, repr=False)

    def add(self, release: np.ndarray) -> None:
        """Count one release, shape (canaries,)."""
        release = np.asarray(release, dtype=float)
        if self._last is not None:
            self.total = self.total + (release - self._last) ** 2 / (2 * self.noise_multiplier**2) - 1
        self._last = release


_ACCURACY = 1e-3  # of the parameter: below the statistical error of any audit


@dataclass(frozen=True)
class Family:
    """Certified curves ordered by a parameter in [low, high].

    Attributes:
        parameter: name of the parameter.
        curve: parameter to the certified curve.
        low: smallest parameter.
        high: largest parameter.
        rising: whether a larger parameter leaks more (as mu does; noise does not).

    Example:
        >>> family = gaussian_family()
        >>> family.parameter, family.rising
        ('mu', True)
    """

    parameter: str
    curve: Callable[[float], TradeOff]
    low: float
    high: float
    rising: bool


@dataclass(frozen=True)
class Refuted:
    """The leakiest refuted member of a family: with the audit's confidence the mechanism leaks more than it.

    Attributes:
        parameter: its parameter; None when no member is refuted.
        epsilon_lower: the epsilon at delta that its curve is proven to exceed (its own where the accountant is
            one-sided); 0 when no member is refuted.

    Example:
        >>> refute_family(gaussian_family(), lambda claim: False, delta=1e-5)
        Refuted(parameter=None, epsilon_lower=0.0)
    """

    parameter: float | None
    epsilon_lower: float


def gaussian_family(relation: Relation | str = Relation.ADD_REMOVE, *, highest: float = 30.0) -> Family:
    """Gaussian DP for mu in [0, `highest`]: valid for mechanisms whose curve is Gaussian.

    Example:
        >>> gaussian_family().curve(1.0).source
        '1-GDP'
    """
    known = Relation.parse(relation)

    def curve(mu: float) -> TradeOff:
        return TradeOff(GaussianCurve(mu), Standing.PROVEN, known, f"{mu:.4g}-GDP")

    return Family("mu", curve, 0.0, highest, True)


def noise_family(
    mechanism: Callable[[float], Mechanism],
    relation: Relation | str = Relation.ADD_REMOVE,
    *,
    low: float = 0.1,
    high: float = 100.0,
) -> Family:
    """Mechanisms that differ in their noise multiplier, with the curves of the exact accountant.

    Args:
        mechanism: noise multiplier to the whole mechanism, e.g. `lambda s: Gaussian(s).poisson(q) * steps`.
        relation: neighbouring relation.
        low: smallest noise multiplier.
        high: largest noise multiplier.

    Raises:
        InvalidInput: the relation is unknown.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> family = noise_family(lambda noise: Gaussian(noise) * 4)
        >>> round(family.curve(2.0).mu(), 6)
        1.0
    """
    known, exact = Relation.parse(relation), accountant("pld")
    return Family("noise_multiplier", lambda noise: exact(mechanism(noise), relation=known), low, high, False)


def refute_family(family: Family, refutes: Callable[[TradeOff], bool], *, delta: float) -> Refuted:
    """The leakiest member of `family` that `refutes` holds for, to .1 % of its parameter.

    Refuting is monotone in the leakage, so bisection finds it; the answer is a member that was itself refuted.

    Args:
        family: the claims.
        refutes: e.g. `result.refutes`, at its own confidence.
        delta: in [0, 1], at which epsilon is read.

    Example:
        >>> found = refute_family(gaussian_family(), lambda claim: claim.curve.mu(0.0) < 1.0, delta=1e-5)
        >>> round(found.parameter, 2), round(found.epsilon_lower, 1)
        (1.0, 4.4)
    """
    delta = check.delta(delta)
    private, leaky = (family.low, family.high) if family.rising else (family.high, family.low)
    if not refutes(family.curve(private)):
        return Refuted(None, 0.0)
    if refutes(family.curve(leaky)):
        private = leaky
    while abs(leaky - private) > _ACCURACY * max(leaky, private):
        middle = (leaky + private) / 2 if min(leaky, private) <= 0 else (leaky * private) ** 0.5
        private, leaky = (middle, leaky) if refutes(family.curve(middle)) else (private, middle)
    found = family.curve(private).epsilon(delta)
    known = found.interval[0]
    return Refuted(private, float(found) if known is None else known)


def guesses_refute(scores: Scores, *, confidence: float = 0.95) -> Callable[[TradeOff], bool]:
    """Whether right guesses on 2, 10, 40 and 100 % of the canaries refute a curve, as in `audit_one_run_curve`."""
    canaries = sum(scores.count)
    tried = sorted({max(2, 2 * int(share * canaries // 2)) for share in (0.02, 0.1, 0.4, 1.0)})
    observed = [(guesses, guessed_right(scores, guesses)) for guesses in tried]
    level = (1 - confidence) / len(tried)
    return lambda claim: any(
        one_run_curve_refutes(claim, canaries=canaries, guesses=guesses, right=right, alpha=level)
        for guesses, right in observed
    )


_EPSILONS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # points of the claim that are bet against


_BETS = (0.02, 0.1, 0.3, 0.6)  # stakes b: small ones find weak evidence, large ones find strong evidence early


class SequentialAudit:
    """An e-process against a claim; it refutes the claim when the wealth of its bets reaches 1 / alpha.

    Under the claim, flagging obeys P(flag | in) - e^eps P(flag | out) <= delta(eps), and the same with the worlds or
    the answers exchanged. With fair coins X = 2 [in, flag] - 2 e^eps [out, flag] is a payoff in [-2 e^eps, 2] of mean
    at most delta(eps), so a bettor who stakes b in [0, 1) multiplies his wealth by 1 + b (X - delta) / (2 e^eps +
    delta): a supermartingale that reaches 1 / alpha with probability at most alpha (Ville 1939). The bets are fixed in
    advance: a mean over eps, b and the four exchanges.

    Args:
        claim: the curve under test.
        confidence: 1 - alpha, in (0, 1).

    Valid when every trial is an independent run of the membership game with a fair coin, and the rule that flags
    depends on earlier trials only.

    Raises:
        InvalidInput: the confidence breaks its rule.

    Example:
        >>> from tacit.audit.bounds import perfect_privacy
        >>> audit = SequentialAudit(perfect_privacy())
        >>> for trial in range(100):
        ...     refuted = audit.observe(included=trial % 2 == 0, flagged=trial % 2 == 0)
        >>> refuted
        True
    """

    def __init__(self, claim: TradeOff, *, confidence: float = 0.95):
        self.claim = claim
        confidence = check.confidence(confidence)
        self.alpha = 1 - confidence
        self.trials = 0
        epsilons = np.array(_EPSILONS)
        deltas = np.array([float(claim.delta(epsilon)) for epsilon in _EPSILONS])
        self._slope, self._delta = np.exp(epsilons)[:, None], deltas[:, None]
        self._stake = np.array(_BETS) / (2 * self._slope + self._delta)
        self._logs = np.zeros((4, *self._stake.shape))
        self._highest = 0.0

    @property
    def evidence(self) -> float:
        """Current wealth, 1 before the first trial."""
        return float(np.exp(self._log_wealth()))

    @property
    def p_value(self) -> float:
        """1 / the highest wealth so far, at most 1: valid whenever it is read."""
        return float(np.exp(-self._highest))

    @property
    def refuted(self) -> bool:
        """Whether the claim was refuted, now or earlier."""
        return self.p_value <= self.alpha

    def observe(self, *, included: bool, flagged: bool) -> bool:
        """Add one trial: the coin, and whether the attack said "in"; returns `refuted`."""
        self.trials += 1
        for side, (world, answer) in enumerate(((True, True), (False, False), (False, True), (True, False))):
            gain = 2.0 * (included is world and flagged is answer)
            loss = 2.0 * self._slope * (included is not world and flagged is answer)
            self._logs[side] += np.log1p(self._stake * (gain - loss - self._delta))
        self._highest = max(self._highest, self._log_wealth())
        return self.refuted

    def _log_wealth(self) -> float:
        return float(np.logaddexp.reduce(self._logs, axis=None) - np.log(self._logs.size))


def audit_multisplit(
    scores: Scores,
    *,
    delta: float,
    splits: int = 25,
    relation: Relation | str = Relation.ADD_REMOVE,
    confidence: float = 0.95,
    claim: TradeOff | None = None,
) -> Finding:
    """Multisplit bound: median over random halvings of the bounds of `split`, each at failure probability alpha / 2.

    If the median exceeds the truth, at least half of the bounds do, each with probability at most alpha / 2; by
    Markov's inequality that happens with probability at most alpha (Meinshausen, Meier & Buehlmann 2009, twice the
    median p-value). A claim is refuted when more than half of the halvings refute it. The bound no longer depends on
    one lucky halving.

    Args:
        scores: an attack's scores; two members and two non-members at least.
        delta: in [0, 1], at which epsilon is read.
        splits: odd number of halvings.
        relation: between the two worlds of the game.
        confidence: in (0, 1).
        claim: the guarantee under test; without one nothing is refuted.

    Raises:
        InvalidInput: an argument breaks its rule, or the claim is about another relation.

    Example:
        >>> scores = Scores("loss", np.arange(50.0) + 50, np.arange(50.0), 50.0)
        >>> audit_multisplit(scores, delta=1e-5, splits=3).epsilon_lower > 1
        True
    """
    delta, relation = check.delta(delta), Relation.parse(relation)
    confidence = check.confidence(confidence)
    splits = check.count("splits", splits)
    if splits % 2 == 0:
        raise check.fail("splits", "odd, so that there is a median", splits)
    if claim is not None and claim.relation is not relation:
        raise check.fail("relation", f"{claim.relation.value}, as the claim's is", relation.value)
    alpha = (1 - confidence) / 2
    reached = [_reached(halves(scores, np.random.default_rng(seed)), delta, alpha, relation) for seed in range(splits)]
    return Finding(
        attack=scores.attack,
        estimator="multisplit",
        valid_when="the records are exchangeable",
        confidence=confidence,
        delta=delta,
        epsilon_lower=float(np.median([bound.epsilon(delta) for bound in reached])),
        mu_lower=float(np.median([bound.mu() for bound in reached])),
        refuted=None if claim is None else sum(not bound <= claim for bound in reached) > splits / 2,
    )


def _reached(parts: tuple[Scores, Scores], delta: float, alpha: float, relation: Relation) -> TradeOff:
    """Error rates bounded on the second half at the threshold chosen on the first."""
    first, second = parts
    threshold = best_threshold(first, clopper_pearson, delta, alpha)
    alarms = np.array([np.sum(second.non_members >= threshold)])
    misses = np.array([np.sum(second.members < threshold)])
    members, non_members = second.count
    points = ErrorPoints(clopper_pearson(alarms, non_members, alpha / 2), clopper_pearson(misses, members, alpha / 2))
    return TradeOff(points, Standing.MEASURED, relation, first.attack, confidence=1 - alpha)


def epsilon_at_rates(fpr: np.ndarray, fnr: np.ndarray, delta: float) -> np.ndarray:
    """Epsilon that the error rates demonstrate: max{log((1 - delta - FNR) / FPR), log((1 - delta - FPR) / FNR), 0}."""
    with np.errstate(divide="ignore"):
        one = np.log(np.maximum(1 - delta - fnr, 0.0) / fpr)
        other = np.log(np.maximum(1 - delta - fpr, 0.0) / fnr)
    return np.maximum(np.maximum(one, other), 0.0)


def _counts(scores: Scores, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(non-members at or above, members below) each threshold."""
    alarms = len(scores.non_members) - np.searchsorted(np.sort(scores.non_members), thresholds, side="left")
    return alarms, np.searchsorted(np.sort(scores.members), thresholds, side="left")


def best_threshold(scores: Scores, bound: RateBound, delta: float, alpha: float) -> float:
    """The threshold of the largest epsilon bound at `delta` on these records, ties by the largest advantage.

    Args:
        scores: of the records that choose.
        bound: on each rate.
        delta: in [0, 1].
        alpha: failure probability, in (0, 1).
    """
    fpr, tpr, thresholds = roc(scores)
    false_alarms, misses = _counts(scores, thresholds)
    members, non_members = scores.count
    fpr_high, fnr_high = bound(false_alarms, non_members, alpha / 2), bound(misses, members, alpha / 2)
    epsilon = epsilon_at_rates(fpr_high, fnr_high, delta)
    best = max(range(len(thresholds)), key=lambda i: (epsilon[i], tpr[i] - fpr[i]))
    return float(thresholds[best])


def halves(scores: Scores, draw: np.random.Generator) -> tuple[Scores, Scores]:
    """A random half of the members and non-members each, and the rest; the draw need not be secret.

    Raises `InvalidInput` unless there are two of each.
    """
    if min(scores.count) < 2:
        raise check.fail("scores", "of two members and two non-members at least to split", scores.count)
    members, non_members = draw.permutation(scores.members), draw.permutation(scores.non_members)
    m, n = len(members) // 2, len(non_members) // 2
    first = replace(scores, members=members[:m], non_members=non_members[:n])
    return first, replace(scores, members=members[m:], non_members=non_members[n:])


NORMAL_WHEN = (
    "the canaries are independent and their scores near-normal with one spread (white-box Dirac canaries over many "
    "steps); epsilon also takes the mechanism to be Gaussian DP"
)
_CENTRE = np.linspace(0.05, 0.95, 91)  # error rates: the tails of near-normal scores are not normal
_ROUNDING = 1e-12  # above the rounding of G_mu, so that a true claim is not refuted by it


def separation(scores: Scores, *, confidence: float) -> float:
    """Lower confidence bound d - z sqrt(1/m + 1/n + d^2 / (2 (m + n))) on (mean_in - mean_out) / spread, >= 0.

    The variance is that of a standardised difference of m and n normal scores with a pooled spread; with m = n it is
    2/n + d^2 / (4n).

    Example:
        >>> draw = np.random.default_rng(0)
        >>> scores = Scores("canaries", draw.normal(1.0, 1.0, 1000), draw.normal(0.0, 1.0, 1000), 0.5)
        >>> 0.8 < separation(scores, confidence=0.95) < 1.0
        True
    """
    confidence = check.confidence(confidence)
    members, non_members = scores.count
    if min(members, non_members) < 2:
        raise check.fail("scores", "of two members and two non-members at least", scores.count)
    squares = members * scores.members.var() + non_members * scores.non_members.var()
    spread = float(np.sqrt(squares / (members + non_members - 2)))
    gap = float(scores.members.mean() - scores.non_members.mean())
    if spread == 0.0:
        return np.inf if gap > 0 else 0.0
    return max(0.0, _lower(gap / spread, members, non_members, confidence))


def normal_points(scores: Scores, *, confidence: float, relation: Relation | str = Relation.ADD_REMOVE) -> TradeOff:
    """Measured curve of the error rates in [.05, .95] that thresholds reach on normal scores of that `separation`.

    The tails are left out: there even nearly normal scores are not normal.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> scores = Scores("canaries", draw.normal(1.0, 1.0, 1000), draw.normal(0.0, 1.0, 1000), 0.5)
        >>> normal_points(scores, confidence=0.95).standing.value
        'measured'
    """
    points = _points(separation(scores, confidence=confidence))
    return TradeOff(points, Standing.MEASURED, Relation.parse(relation), scores.attack, confidence=confidence)


def audit_normal(
    scores: Scores,
    *,
    delta: float,
    relation: Relation | str = Relation.ADD_REMOVE,
    confidence: float = 0.95,
    claim: TradeOff | None = None,
) -> Finding:
    """Lower bound on mu by the `separation`, and the epsilon at `delta` of Gaussian DP with that mu.

    Where only the noise of the mechanism is unknown, `refute_family` on the points gives the sharper epsilon.

    Args:
        scores: of canaries; two in and two out at least.
        delta: in [0, 1], at which epsilon is read.
        relation: between the two worlds of the game.
        confidence: in (0, 1).
        claim: the guarantee under test; without one nothing is refuted.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> scores = Scores("canaries", draw.normal(1.0, 1.0, 1000), draw.normal(0.0, 1.0, 1000), 0.5)
        >>> 0.8 < audit_normal(scores, delta=1e-5).mu_lower < 1.0
        True
    """
    delta, relation = check.delta(delta), Relation.parse(relation)
    reached = normal_points(scores, confidence=confidence, relation=relation)
    mu = separation(scores, confidence=confidence)
    members, non_members = scores.count
    return Finding(
        attack=scores.attack,
        estimator="normal",
        valid_when=NORMAL_WHEN,
        confidence=confidence,
        delta=delta,
        epsilon_lower=gaussian_epsilon(delta, mu),
        mu_lower=mu,
        refuted=None if claim is None else not reached <= claim,
        detectable_mu=_detectable(claim or perfect_privacy(relation), members, non_members, confidence),
    )


def _lower(gap: float, members: int, non_members: int, confidence: float) -> float:
    variance = 1 / members + 1 / non_members + gap**2 / (2 * (members + non_members))
    return gap - float(ndtri(confidence)) * float(np.sqrt(variance))


def _points(gap: float) -> ErrorPoints:
    """Error rates of thresholds on normal scores of that separation; the trivial point without one."""
    if gap <= 0:
        return ErrorPoints(np.ones(1), np.ones(1))
    missed = gaussian_beta(_CENTRE, gap) if np.isfinite(gap) else np.zeros_like(_CENTRE)
    return ErrorPoints(_CENTRE, np.minimum(missed + _ROUNDING, 1.0))


def _detectable(claim: TradeOff, members: int, non_members: int, confidence: float) -> float:
    """The smallest separation whose expected lower bound refutes `claim`; inf if none up to 60 does."""

    def refutes(gap: float) -> bool:
        reached = max(0.0, _lower(gap, members, non_members, confidence))
        return not TradeOff(_points(reached), Standing.MEASURED, claim.relation, "best attack") <= claim

    return smallest_refuting(refutes) if refutes(LARGEST_MU) else float("inf")
