"""Audits of scores that somebody else's attack gave to somebody else's model, against a claim."""

from __future__ import annotations

import math

from tacit import check
from tacit.attacks import Scores
from tacit.audit.estimators import ESTIMATORS
from tacit.audit.normal import audit_normal
from tacit.audit.one_run_audit import audit_one_run, audit_one_run_curve
from tacit.audit.results import Report, Trials
from tacit.audit.run import audit_multisplit, audit_scores
from tacit.relation import Relation
from tacit.tradeoff import TradeOff

UNDECLARED = "every score is of a training run of its own, or each record was in or out by its own fair coin"
"""What makes scores a test of a claim; nothing in them shows it."""
REFUTED_AT = 0.999
"""Confidence at which a claim is refuted, over all tests of the audit together."""


def audit_foreign_scores(
    scores: Scores,
    *,
    delta: float,
    claim: TradeOff | None = None,
    trials: Trials | str = Trials.RECORDS,
    coins: bool = False,
    confidence: float = 0.95,
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Report:
    """Every estimator that `scores` allow, each at `confidence`, and the verdict on `claim` at 99.9 % together.

    Records of one model are no independent trials, and members may differ from non-members in more than membership. So
    there is a verdict only where one of both is declared: by `band`, which allows every threshold, and with `coins` by
    `one_run_curve` too, each at half of the failure probability. Elsewhere the report says what would refute, and if
    what. `split`, `multisplit` and `normal` give bounds under conditions of their own and no verdict.

    Args:
        scores: of members and non-members.
        delta: in [0, 1], of the claim.
        claim: the guarantee under test, of the relation `relation`; without one nothing is refuted.
        trials: `independent`, a declaration that every score is of a training run of its own, else `records` of one
            model.
        coins: a declaration that each record was in or out by its own fair coin, as the one-run estimators need.
        confidence: of every row, in (0, 1).
        relation: between the two worlds.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> import numpy as np
        >>> found = audit_foreign_scores(Scores("x", np.arange(60.0) + 50, np.arange(60.0), 50.0), delta=1e-5)
        >>> [row["estimator"] for row in found.rows()]
        ['split', 'bonferroni', 'dkw', 'band', 'multisplit', 'normal']
    """
    confidence = check.confidence(confidence)
    common = {"delta": delta, "confidence": confidence, "relation": relation, "claim": claim}
    results = [audit_scores(scores, estimator=name, trials=trials, **common) for name in ESTIMATORS if name != "fixed"]
    findings = [audit_multisplit(scores, **common)]
    spread = [*scores.members, *scores.non_members]
    if all(map(math.isfinite, spread)):
        findings.append(audit_normal(scores, **common))
    if coins:
        findings.append(audit_one_run(scores, delta=delta, confidence=confidence, claim=claim))
        findings.append(audit_one_run_curve(scores, delta=delta, confidence=confidence, claim=claim))
    declared = coins or Trials(trials) is Trials.INDEPENDENT
    refuting = []
    if claim is not None:
        level = 1 - (1 - REFUTED_AT) / (2 if coins else 1)
        strict = {"delta": delta, "confidence": level, "claim": claim}
        by_counts = audit_scores(scores, trials=trials, relation=relation, **strict).refutes(claim)
        by_guesses = coins and bool(audit_one_run_curve(scores, **strict).refuted)
        refuting = [scores.attack] if declared and (by_counts or by_guesses) else []
    why = "scores of a model that was trained elsewhere"
    return Report(
        delta,
        tuple(results),
        tuple(findings),
        claim=claim,
        differences=(why,),
        refuted_by=tuple(refuting),
        undeclared="" if declared else UNDECLARED,
    )
