"""Audits: lower bounds on the leakage of a mechanism or model, in the same object as the accountants' upper bounds."""

from tacit.audit.bounds import ESTIMATORS, ErrorBand, band, clopper_pearson, dkw, ranks
from tacit.audit.canaries import (
    AllocationLikelihoodRatio,
    CanaryAudit,
    GroupedLikelihoodRatio,
    LikelihoodRatio,
    ReleaseDifferences,
)
from tacit.audit.foreign_trainer import replay_trainer
from tacit.audit.insertion_canaries import InsertionCanaries, audit_foreign_scores
from tacit.audit.noise_monitor import ALARM, LowOrderBits, NoiseMonitor, reachable
from tacit.audit.one_run_audit import (
    Family,
    Refuted,
    audit_one_run,
    audit_one_run_curve,
    gaussian_family,
    guessed_right,
    noise_family,
    one_run_curve_refutes,
    one_run_p_value,
    refute_family,
)
from tacit.audit.results import AuditResult, Finding, Report, Trials
from tacit.audit.run import (
    CanaryRun,
    SequentialAudit,
    Trial,
    audit_multisplit,
    audit_normal,
    audit_scores,
    many_runs,
    normal_points,
    one_run,
    separation,
)
from tacit.audit.sampler_monitor import AllocationMonitor, GroupMonitor, SamplerMonitor

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
    "Trial",
    "Trials",
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
