"""Audits: lower bounds on the leakage of a mechanism or model, in the same object as the accountants' upper bounds."""

from tacit.audit.allocation_canaries import AllocationLikelihoodRatio
from tacit.audit.allocation_monitor import AllocationMonitor
from tacit.audit.bounds import band, clopper_pearson, dkw, ranks
from tacit.audit.canaries import LikelihoodRatio, ReleaseDifferences
from tacit.audit.canary_audit import CanaryAudit
from tacit.audit.claim_families import Family, Refuted, gaussian_family, noise_family, refute_family
from tacit.audit.correlated_canaries import GroupedLikelihoodRatio
from tacit.audit.credible import audit_bayesian
from tacit.audit.estimators import ESTIMATORS, ErrorBand
from tacit.audit.foreign_scores import audit_foreign_scores
from tacit.audit.foreign_trainer import replay_trainer
from tacit.audit.game import CanaryRun, Trial, many_runs, one_run
from tacit.audit.group_monitor import GroupMonitor
from tacit.audit.insertion_canaries import InsertionCanaries
from tacit.audit.low_order_bits import LowOrderBits, reachable
from tacit.audit.noise_monitor import ALARM, NoiseMonitor
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
from tacit.audit.sampler_monitor import SamplerMonitor
from tacit.audit.sequential import SequentialAudit, SequentialBound

__all__ = [
    "ALARM",
    "ESTIMATORS",
    "AllocationLikelihoodRatio",
    "AllocationMonitor",
    "AuditResult",
    "CanaryAudit",
    "CanaryRun",
    "ErrorBand",
    "Family",
    "Finding",
    "GroupMonitor",
    "GroupedLikelihoodRatio",
    "InsertionCanaries",
    "LikelihoodRatio",
    "LowOrderBits",
    "NoiseMonitor",
    "Refuted",
    "ReleaseDifferences",
    "Report",
    "SamplerMonitor",
    "SequentialAudit",
    "SequentialBound",
    "Trial",
    "Trials",
    "audit_bayesian",
    "audit_foreign_scores",
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
    "reachable",
    "refute_family",
    "replay_trainer",
    "separation",
]
