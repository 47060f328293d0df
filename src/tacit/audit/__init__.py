"""Audits: lower bounds on what a mechanism or model leaks, in the same object as the accountants' upper bounds."""

from tacit.audit.bounds import band, clopper_pearson, dkw, ranks
from tacit.audit.canaries import Jumps, LikelihoodRatio
from tacit.audit.claim_families import Family, Refuted, gaussian_family, noise_family, refute_family
from tacit.audit.credible import audit_bayesian
from tacit.audit.estimators import ESTIMATORS, ErrorBand
from tacit.audit.game import Lane, Trial, many_runs, one_run
from tacit.audit.normal import audit_normal, normal_points, separation
from tacit.audit.one_run_audit import (
    audit_one_run,
    audit_one_run_curve,
    guessed_right,
    one_run_curve_refutes,
    one_run_p_value,
)
from tacit.audit.results import AuditResult, Finding, Report, Trials
from tacit.audit.run import audit_multisplit, audit_scores
from tacit.audit.sequential import SequentialAudit, SequentialBound

__all__ = [
    "ESTIMATORS",
    "AuditResult",
    "ErrorBand",
    "Family",
    "Finding",
    "Jumps",
    "Lane",
    "LikelihoodRatio",
    "Refuted",
    "Report",
    "SequentialAudit",
    "SequentialBound",
    "Trial",
    "Trials",
    "audit_bayesian",
    "audit_multisplit",
    "audit_normal",
    "audit_one_run",
    "audit_one_run_curve",
    "audit_scores",
    "band",
    "clopper_pearson",
    "dkw",
    "gaussian_family",
    "guessed_right",
    "many_runs",
    "noise_family",
    "normal_points",
    "one_run",
    "one_run_curve_refutes",
    "one_run_p_value",
    "ranks",
    "refute_family",
    "separation",
]
