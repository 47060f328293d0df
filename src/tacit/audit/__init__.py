"""Audits: lower bounds on the leakage of a mechanism or model, in the same object as the accountants' upper bounds."""

from tacit.audit.bounds import ESTIMATORS, band
from tacit.audit.canaries import AllocationLikelihoodRatio, CanaryAudit, GroupedLikelihoodRatio, LikelihoodRatio
from tacit.audit.foreign_trainer import replay_trainer
from tacit.audit.insertion_canaries import InsertionCanaries, audit_foreign_scores
from tacit.audit.monitors import AllocationMonitor, GroupMonitor, NoiseMonitor, SamplerMonitor
from tacit.audit.one_run_audit import (
    audit_one_run,
    audit_one_run_curve,
    guessed_right,
    one_run_curve_refutes,
    one_run_p_value,
)
from tacit.audit.run import AuditResult, Finding, Report, Trials, audit_scores, one_run

__all__ = [
    "ESTIMATORS",
    "AllocationLikelihoodRatio",
    "AllocationMonitor",
    "AuditResult",
    "CanaryAudit",
    "Finding",
    "GroupMonitor",
    "GroupedLikelihoodRatio",
    "InsertionCanaries",
    "LikelihoodRatio",
    "NoiseMonitor",
    "Report",
    "SamplerMonitor",
    "Trials",
    "audit_foreign_scores",
    "audit_one_run",
    "audit_one_run_curve",
    "audit_scores",
    "band",
    "guessed_right",
    "one_run",
    "one_run_curve_refutes",
    "one_run_p_value",
    "replay_trainer",
]
