"""Everything that one audit of a run found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.attacks import Overlap
from tacit.audit.finding import Finding
from tacit.audit.result import AuditResult
from tacit.tradeoff import TradeOff


@dataclass(frozen=True)
class Report:
    """What attacks found, held against what was claimed.

    Attributes:
        delta: of the claim.
        results: of each attack.
        findings: by estimators that bound epsilon directly.
        overlaps: by attack, who is flagged in how many of several runs.
        claim: the proven curve; None where no accountant gives one.
    """

    delta: float
    results: Sequence[AuditResult]
    findings: Sequence[Finding] = ()
    overlaps: Mapping[str, Sequence[Overlap]] = field(default_factory=dict)
    claim: TradeOff | None = None

    def refutes(self, result: AuditResult) -> bool:
        """Whether `result` is incompatible with the claim; False without one."""
        return self.claim is not None and result.refutes(self.claim)

    @property
    def confidences(self) -> list[float]:
        """Of each verdict on the claim; a posterior gives none."""
        judged = [] if self.claim is None else self.results
        return [each.confidence for each in (*judged, *(found for found in self.findings if found.refuted is not None))]

    def rows(self) -> list[dict[str, Any]]:
        """The entry of each audit in JSON: what `card.json` has of it, and how it was judged."""
        judged = [
            result.row()
            | {
                "estimator": result.estimator,
                "trials": result.trials.value,
                "statement": result.statement,
                "detectable_epsilon": result.detectable_epsilon,
                "refuted": self.refutes(result),
            }
            for result in self.results
        ]
        return judged + [
            finding.row()
            | {
                "estimator": finding.estimator,
                "trials": "independent",
                "statement": f"Valid when {finding.valid_when}.",
                "detectable_mu": finding.detectable_mu,
                "refuted": bool(finding.refuted),
            }
            for finding in self.findings
        ]
