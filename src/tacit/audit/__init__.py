"""Audits: lower bounds on what a mechanism or model leaks, in the same object as the accountants' upper bounds."""

from tacit.audit.bounds import band, clopper_pearson, dkw, ranks
from tacit.audit.estimators import ESTIMATORS, ErrorBand
from tacit.audit.result import AuditResult, Trials
from tacit.audit.run import audit_scores

__all__ = [
    "ESTIMATORS",
    "AuditResult",
    "ErrorBand",
    "Trials",
    "audit_scores",
    "band",
    "clopper_pearson",
    "dkw",
    "ranks",
]
