"""Audits through error rates at thresholds: attack scores in, a lower bound on leakage out.

The membership inference game: the caller runs the mechanism, the coins are drawn here.

Results of audits: `AuditResult` from error rates, `Finding` of a direct bound, `Report` of a whole run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from tacit import check
from tacit.attacks import Overlap, Scores, advantage, ppv, roc
from tacit.audit.bounds import ESTIMATORS, ErrorBand, Estimator, detectable_mu
from tacit.noise import SecureStream, Stream
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, TradeOff
from tacit.tradeoff.gaussian import gaussian_epsilon

REFUTES, CONSISTENT = "refutes the claim", "consistent with the claim"
REFUTED_AT = 0.999
"""Confidence of a refutation, over all tests of one audit together."""
DETECTABLE_FAMILY = "gaussian"
"""Whose mu and epsilon the minimum detectable violation is: a mechanism of Gaussian DP."""
_CARD_KEYS = ("attack", "confidence", "advantage", "ppv", "epsilon_lower", "mu_lower")


class _Audited:
    def row(self) -> dict[str, Any]:
        """The entry of this audit in `card.json`; without a single threshold, advantage and PPV are None."""
        return {key: getattr(self, key, None) for key in _CARD_KEYS}


@dataclass(frozen=True)
class Finding(_Audited):
    """A direct lower bound on epsilon at `delta`, with its confidence and its conditions.

    Attributes:
        attack: name of the attack.
        estimator: `one_run`, `one_run_curve` or `bayesian`.
        valid_when: conditions of the bound, in words.
        confidence: in (0, 1); of `bayesian`, the credibility under its prior.
        delta: at which epsilon is read.
        epsilon_lower: >= 0.
        mu_lower: the same for Gaussian DP, where the estimator gives it.
        refuted: whether the claim that was given is refuted; None without a claim.
        detectable_mu: the smallest mu of a mu-GDP mechanism on which a best attack would have been expected to refute
            the claim (perfect privacy without one); None where the estimator has no such statement.

    Example:
        >>> Finding("loss", "one_run", "coins are fair", 0.95, 1e-5, epsilon_lower=0.4).row()["epsilon_lower"]
        0.4
    """

    attack: str
    estimator: str
    valid_when: str
    confidence: float
    delta: float
    epsilon_lower: float
    mu_lower: float | None = None
    refuted: bool | None = None
    detectable_mu: float | None = None


class Trials(StrEnum):
    """What one scored member or non-member is, which decides what the confidence refers to.

    independent: the outcome of an independent run of the membership game (one training run, or one draw of a
        mechanism, for each). The bounds are then bounds on the mechanism, and refute a false claim.
    records: one of many records scored against a single model. They share the model, so they are no independent
        trials of the game. Given the model, and if the records are a random sample of members and of non-members,
        the bounds hold for this attack's error rates on this model over such records. The epsilon and mu are what
        the same rates would prove over independent trials.

    Example:
        >>> Trials("records").value
        'records'
    """

    INDEPENDENT = "independent"
    RECORDS = "records"


def _percent(confidence: float) -> str:
    """Percentage with two decimals and rounded down, so that no confidence reads as certainty."""
    return f"{math.floor(1e4 * confidence * (1 + 1e-12)) / 100:g}"


_SCOPE = {
    Trials.INDEPENDENT: (
        "With {percent} % confidence over independent trials of the membership game, the mechanism leaks at "
        "least this much; a claim below it is false."
    ),
    Trials.RECORDS: (
        "With {percent} % confidence over the records scored, this attack does at least this well on this one "
        "model. Records of one model are not independent trials of the game: epsilon and mu are what these rates "
        "would prove if they were."
    ),
}


@dataclass(frozen=True)
class AuditResult(_Audited):
    """A lower bound on leakage from one attack, with its confidence.

    Under add/remove the membership game compares training with and without the record. Where the number of training
    records was fixed, as in one train/test split, a non-member is also one record that another took the place of;
    the comparison with an add/remove claim then neglects that other record's influence.

    Attributes:
        attack: name of the attack.
        estimator: how its error rates were bounded (`estimators.ESTIMATORS`).
        trials: what the confidence refers to; `statement` says it in words.
        confidence: in (0, 1), joint over both error rates and every threshold evaluated.
        delta: the claim's delta, at which `epsilon_lower` is read.
        advantage: TPR - FPR at the evaluated threshold, the attack's own rule.
        advantage_interval: both ends hold together with the confidence.
        ppv: fraction of members among flagged records at that threshold, half of all being members.
        tradeoff: the measured lower bound on leakage, standing `measured`; one-sided, level alpha/2 for each rate.
        fpr: false positive rates of the whole empirical ROC, from 0 to 1.
        tpr: true positive rates of the whole empirical ROC, from 0 to 1.
        band: two-sided bounds at each evaluated threshold, together with the confidence.
        members: number of evaluated members.
        non_members: number of evaluated non-members.
        detectable_mu: the minimum detectable violation: the smallest mu of a mu-GDP mechanism on which a best attack
            would have been expected to refute the claim. A pass is no evidence of less leakage than that, and never
            evidence of differential privacy.
        detectable_epsilon: epsilon at `delta` of Gaussian DP with that mu.

    Example:
        >>> from tacit.attacks import Scores
        >>> from tacit.audit import audit_scores
        >>> result = audit_scores(Scores("loss", np.arange(50.0) + 50, np.arange(50.0), 50.0), delta=1e-5)
        >>> result.advantage, result.epsilon_lower > 0
        (1.0, True)
    """

    attack: str
    estimator: str
    trials: Trials
    confidence: float
    delta: float
    advantage: float
    advantage_interval: tuple[float, float]
    ppv: float
    tradeoff: TradeOff
    fpr: np.ndarray = field(repr=False)
    tpr: np.ndarray = field(repr=False)
    band: ErrorBand = field(repr=False)
    members: int
    non_members: int
    detectable_mu: float
    detectable_epsilon: float

    @property
    def epsilon_lower(self) -> float:
        """Max of log((1 - delta - FNR_u) / FPR_u) and its mirror image over the evaluated thresholds, >= 0."""
        return float(self.tradeoff.epsilon(self.delta))

    @property
    def mu_lower(self) -> float:
        """Max of Phi^{-1}(1 - FPR_u) - Phi^{-1}(FNR_u): every smaller mu of Gaussian DP is refuted.

        It bounds the mu of mechanisms whose curve is Gaussian; the curve of few subsampled steps is not.
        """
        return float(self.tradeoff.mu())

    @property
    def statement(self) -> str:
        """The exact claim, in words."""
        return _SCOPE[self.trials].format(percent=_percent(self.confidence))

    def refutes(self, claim: TradeOff) -> bool:
        """Whether the measured lower bound is incompatible with `claim`, which must have the audit's relation."""
        return not self <= claim

    def __le__(self, claim: TradeOff) -> bool:
        """`audit <= claim`: whether the measured lower bound is compatible with `claim`, for either kind of trials.

        What False refers to is what `statement` says: the mechanism for independent trials, these records of this one
        model otherwise.

        Raises:
            InvalidInput: `claim` is about another relation.
        """
        return self.tradeoff <= claim


@dataclass(frozen=True)
class Report:
    """All results of one audit of a run, and the claim under test.

    Attributes:
        delta: delta of the claim.
        results: one for each attack.
        findings: of estimators that bound epsilon directly.
        overlaps: for each attack, how many records are flagged in at least k of several runs.
        claim: the proven curve; None where no accountant gives one.
        monitors: whether the monitor of the noise, or of the sampler, passed on the canary run.
        differences: why what was audited is not what was run.
        refuted_by: attacks that refute the claim at 99.9 % over all tests; None to take each row's own confidence.
        audited_steps: steps of the canary run; 0 without one.
        refusals: what the measurements of the releases of repeated runs found, which would have ended the runs.
        undeclared: what would have to hold of the scores for a refutation, and was not declared; empty where nothing.

    Example:
        >>> Report(1e-5, results=[]).rows()
        []
    """

    delta: float
    results: Sequence[AuditResult]
    findings: Sequence[Finding] = ()
    overlaps: Mapping[str, Sequence[Overlap]] = field(default_factory=dict)
    claim: TradeOff | None = None
    monitors: Mapping[str, bool] = field(default_factory=dict)
    differences: Sequence[str] = ()
    refuted_by: Sequence[str] | None = None
    audited_steps: int = 0
    refusals: Sequence[str] = ()
    undeclared: str = ""

    def __le__(self, claim: TradeOff) -> bool:
        """`report <= claim`: whether every result of an attack is compatible with `claim`, each at its own confidence.

        Raises `InvalidInput` where the claim is about another relation.
        """
        return all(result <= claim for result in self.results)

    @property
    def audited(self) -> bool:
        """Whether what ran was repeated: canaries trained by the run's own execution record and ledger."""
        return self.audited_steps > 0 and not self.differences

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted at 99.9 %, or a sum, the noise or the sampler is not what the ledger says."""
        by_results = any(map(self.refutes, self.results)) if self.refuted_by is None else bool(self.refuted_by)
        return by_results or bool(self.refusals) or not all(self.monitors.values())

    def verdict(self, found: AuditResult | Finding) -> str:
        """What a row of the report says about the claim; empty without one."""
        if self.claim is None:
            return ""
        here = self.refutes(found) if isinstance(found, AuditResult) else bool(found.refuted)
        if self.refuted_by is None:
            return REFUTES if here else CONSISTENT
        if found.attack in self.refuted_by:
            return REFUTES
        if here and self.undeclared:
            return f"would refute the claim, if {self.undeclared}"
        return f"above the claim at {_percent(found.confidence)} %, not at 99.9 %" if here else CONSISTENT

    def refutes(self, result: AuditResult) -> bool:
        """Whether `result` is incompatible with the claim; False without one."""
        return self.claim is not None and result.refutes(self.claim)

    @property
    def confidences(self) -> list[float]:
        """Confidence of each verdict on the claim; a posterior gives none."""
        tests = [] if self.claim is None else self.results
        return [test.confidence for test in (*tests, *(found for found in self.findings if found.refuted is not None))]

    def rows(self) -> list[dict[str, Any]]:
        """The entry of each audit in JSON: its entry in `card.json`, estimator, trials and verdict."""
        return [self._row(found) for found in (*self.results, *self.findings)]

    def _row(self, found: AuditResult | Finding) -> dict[str, Any]:
        if isinstance(found, AuditResult):
            own = {"detectable_epsilon": found.detectable_epsilon, "trials": found.trials.value}
            own |= {"statement": found.statement, "refuted": self.refutes(found)}
        else:
            own = {"detectable_mu": found.detectable_mu, "trials": "independent"}
            own |= {"statement": f"Valid when {found.valid_when}.", "refuted": bool(found.refuted)}
        shared = {"estimator": found.estimator, "detectable_family": DETECTABLE_FAMILY, "verdict": self.verdict(found)}
        return found.row() | own | shared


def audit_scores(
    scores: Scores,
    *,
    delta: float,
    estimator: str = "band",
    trials: Trials | str = Trials.RECORDS,
    relation: Relation | str = Relation.ADD_REMOVE,
    confidence: float = 0.95,
    claim: TradeOff | None = None,
) -> AuditResult:
    """Lower bound on the leakage that `scores` demonstrate.

    FPR and FNR are each bounded above at alpha/2, alpha = 1 - confidence, at every threshold that the estimator
    evaluates; the bounds are points that the trade-off curve must lie on or below.

    Args:
        scores: an attack's scores.
        delta: the claim's delta in [0, 1].
        estimator: `fixed` or `band`; see `tacit.audit.bounds` for when each is valid.
        trials: `independent` runs of the membership game, or `records` of one model; see `Trials`.
        relation: between the two worlds of the game: adding canaries tests add/remove, swapping them replace-one.
        confidence: in (0, 1).
        claim: the guarantee under test, for the minimum detectable violation; perfect privacy when None.

    Raises:
        InvalidInput: an argument breaks its rule, or the estimator, trials or relation are unknown.

    Example:
        >>> scores = Scores("loss", np.arange(50.0) + 50, np.arange(50.0), 50.0)
        >>> audit_scores(scores, delta=1e-5, estimator="fixed").advantage
        1.0
    """
    delta = check.delta(delta)
    method = ESTIMATORS[check.choice("estimator", estimator, ESTIMATORS)]
    trials = Trials(check.choice("trials", trials, Trials))
    relation = Relation.parse(relation)
    confidence = check.confidence(confidence)
    alpha, thresholds = 1 - confidence, method.thresholds(scores)
    at = method.band(scores, np.array([scores.threshold]), alpha)
    least, most = (float(1 - fnr[0] - fpr[0]) for fnr, fpr in ((at.fnr_high, at.fpr_high), (at.fnr_low, at.fpr_low)))
    members, non_members = scores.count
    detectable = detectable_mu(method.bound, members=members, non_members=non_members, alpha=alpha, claim=claim)
    fpr, tpr, _ = roc(scores)
    return AuditResult(
        attack=scores.attack,
        estimator=method.name,
        trials=trials,
        confidence=confidence,
        delta=delta,
        advantage=advantage(scores),
        advantage_interval=(least, most),
        ppv=ppv(scores),
        tradeoff=measured_tradeoff(scores, method, relation=relation, confidence=confidence),
        fpr=fpr,
        tpr=tpr,
        band=method.band(scores, thresholds, alpha),
        members=members,
        non_members=non_members,
        detectable_mu=detectable,
        detectable_epsilon=gaussian_epsilon(delta, detectable),
    )


def measured_tradeoff(scores: Scores, estimator: Estimator, *, relation: Relation, confidence: float) -> TradeOff:
    """What `scores` demonstrate: the curve that the trade-off curve of the mechanism must lie on or below.

    Args:
        scores: an attack's scores.
        estimator: of both error rates.
        relation: between the two worlds of the game.
        confidence: in (0, 1).
    """
    outer = ErrorPoints(*estimator.outer(scores, estimator.thresholds(scores), 1 - confidence)).vertices()
    return TradeOff(outer, Standing.MEASURED, relation, scores.attack, confidence=confidence)


CanaryRun = Callable[[np.ndarray], np.ndarray]
"""Runs the mechanism once with the canaries that a boolean vector (m,) chooses; returns their scores, shape (m,)."""


def one_run(
    run: CanaryRun, *, attack: str, canaries: int, threshold: float = 0.0, stream: Stream | None = None
) -> Scores:
    """Scores of one run that includes each of `canaries` independently with probability 1/2.

    Args:
        run: one run of the production path; its scores must not depend on the coins themselves.
        attack: name of the attack.
        canaries: >= 2.
        threshold: the attack's own rule, fixed beforehand.
        stream: source of the coins; a new `SecureStream` by default.

    Raises:
        InvalidInput: an argument breaks its rule, or the scores are not one for each canary.

    Example:
        >>> sum(one_run(lambda included: included.astype(float), attack="sure", canaries=10).count)
        10
    """
    canaries = check.count("canaries", canaries, minimum=2)
    source = stream if stream is not None else SecureStream()
    included = np.zeros(canaries, bool)
    while included.all() or not included.any():
        included = source.uniform(canaries) < 0.5
    scores = np.asarray(run(included), dtype=float)
    if scores.shape != included.shape:
        raise check.fail("scores", f"one for each of {canaries} canaries", f"shape {scores.shape}")
    return Scores(attack, scores[included], scores[~included], threshold)
